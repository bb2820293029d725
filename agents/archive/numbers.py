"""Numbers that prove themselves: bank cards, bank accounts, resident ids."""

from typing import Final

_WEIGHTS: Final = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
_CHECKS: Final = "10X98765432"


def is_card(text: str) -> bool:
    """Say whether digits are a payment card's: 12 to 19 of them, Luhn's check.

    Example:
        >>> is_card("4111 1111 1111 1111"), is_card("4111 1111 1111 1112")
        (True, False)
    """
    digits = [int(char) for char in text if char.isdigit()]
    if not 12 <= len(digits) <= 19:
        return False
    total = sum(digits[-1::-2])
    for digit in digits[-2::-2]:
        total += 2 * digit - 9 if digit > 4 else 2 * digit
    return total % 10 == 0 and len(set(digits)) > 1


def is_bank_account(text: str) -> bool:
    """Say whether a text is an IBAN, by its remainder (ISO 7064, mod 97).

    Example:
        >>> is_bank_account("GB82 WEST 1234 5698 7654 32")
        True
    """
    plain = "".join(text.split()).upper()
    if not 15 <= len(plain) <= 34:
        return False
    turned = plain[4:] + plain[:4]
    number = "".join(str(int(char, 36)) for char in turned)
    return int(number) % 97 == 1


def is_resident_id(text: str) -> bool:
    """Say whether 18 characters are a Chinese resident id, by the last one.

    Example:
        >>> is_resident_id("11010519491231002X")
        True
    """
    total = sum(
        int(digit) * weight for digit, weight in zip(text[:17], _WEIGHTS, strict=True)
    )
    return _CHECKS[total % 11] == text[17].upper()
