"""All rows of inputs that broke other systems, and more of each kind, as one table."""

from hostile import (
    branch_rows,
    damage_rows,
    name_rows,
    number_rows,
    order_rows,
    text_rows,
)
from hostile.cases import CASES, Case

__all__ = ["CASES", "MODULES", "Case"]

MODULES = (text_rows, number_rows, order_rows, branch_rows, name_rows, damage_rows)
"""Importing them fills the table."""
