"""Sessions that have cooled: many packed into one immutable object."""
