"""Turns of real dialogues with made-up identifiers planted in them, by kind."""

from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final, NamedTuple


class Planted(NamedTuple):
    """A text with one identifier in it.

    Attributes:
        language: en or zh.
        kind: One of `KINDS`.
        text: The text.
        secret: The identifier, as it stands in the text.
    """

    language: str
    kind: str
    text: str
    secret: str


KINDS: Final = ("email", "phone", "card", "id", "name", "bare", "address")
"""`bare`: a name with nothing about it that says so; in English the given one."""

_GIVEN: Final = (
    "Alice",
    "Benjamin",
    "Carla",
    "Dmitri",
    "Eleanor",
    "Farid",
    "Grace",
    "Hector",
    "Imogen",
    "Jamal",
    "Keiko",
    "Liam",
    "Marguerite",
    "Nikhil",
    "Olivia",
    "Pavel",
    "Quentin",
    "Rosa",
    "Siobhan",
    "Tariq",
    "Ursula",
    "Viktor",
    "Wendy",
    "Xavier",
    "Yolanda",
    "Zachary",
    "Anneliese",
    "Bartholomew",
    "Chiamaka",
    "Desmond",
)
_FAMILY: Final = (
    "Abernathy",
    "Bergstrom",
    "Castillo",
    "Delacroix",
    "Eastwood",
    "Fitzgerald",
    "Goldberg",
    "Hutchinson",
    "Iwamoto",
    "Jankowski",
    "Kowalczyk",
    "Lindqvist",
    "Montgomery",
    "Nakamura",
    "Okonkwo",
    "Pemberton",
    "Quigley",
    "Rasmussen",
    "Silverstein",
    "Thornbury",
    "Underwood",
    "Vandermeer",
    "Whitfield",
    "Yamada",
    "Zielinski",
    "Adeyemi",
    "Baptiste",
    "Carruthers",
    "Dunleavy",
    "Entwistle",
)
_SURNAMES: Final = "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林罗高郑梁谢宋唐许邓冯韩曹"
_SIGNS: Final = "伟芳娜敏静丽强磊军洋勇艳杰娟涛明超霞平刚桂英华建文玉兰红梅志国"
_STREETS: Final = (
    "Maple",
    "Willow",
    "Chestnut",
    "Harbour",
    "Victoria",
    "Magnolia",
    "Kensington",
    "Prospect",
    "Juniper",
    "Elm",
)
_WAYS: Final = ("Street", "Avenue", "Road", "Lane", "Drive", "St", "Ave", "Rd")
_CITIES: Final = "北京上海广州深圳杭州成都武汉南京西安重庆"
_DISTRICTS: Final = ("朝阳", "海淀", "浦东新", "天河", "南山", "西湖", "武侯", "江汉")
_ROADS: Final = ("建国", "中山", "人民", "解放", "长江", "和平", "南京西", "延安")

_SAID: Final = {
    ("en", "email"): ("You can write to {} about it.", "my mail is {}", "{} please"),
    ("en", "phone"): ("My number is {}.", "Call me at {} tomorrow", "it is {} thanks"),
    ("en", "card"): ("Please charge {}.", "The card number is {}", "use {} for it"),
    ("en", "id"): ("My social security number is {}.", "SSN {}", "the account is {}"),
    ("en", "name"): (
        "My name is {}.",
        "The reservation is for {} and two others",
        "I spoke to {} yesterday.",
    ),
    ("en", "bare"): ("Please ask {} about it.", "{} comes too", "it was for {}"),
    ("en", "address"): ("I live at {}.", "Send it to {} please", "It is at {}"),
    ("zh", "email"): ("我的邮箱是{}。", "请发到{}谢谢", "邮件{}"),
    ("zh", "phone"): ("我的电话是{}。", "打{}联系我", "手机号{}"),
    ("zh", "card"): ("我的银行卡号是{}。", "卡号{}", "请用{}付款"),
    ("zh", "id"): ("身份证号是{}。", "我的身份证{}", "证件号码:{}"),
    ("zh", "name"): ("我叫{}。", "预订人是{}", "昨天{}说可以的"),
    ("zh", "bare"): ("{}要两间房", "让{}来取吧", "这是{}点的菜"),
    ("zh", "address"): ("我住在{}。", "请送到{}", "地址是{}"),
}


def planted(
    carriers: Sequence[str], language: str, count: int, seed: int = 1
) -> Iterator[Planted]:
    """Yield texts: a real turn, and behind or before it a sentence with a secret.

    Args:
        carriers: Real turns of the language.
        language: en or zh.
        count: Of each kind.
        seed: Decides everything.
    """
    chance = Random(seed)
    for kind in KINDS:
        for _ in range(count):
            secret = _MAKERS[language, kind](chance)
            said = chance.choice(_SAID[language, kind]).format(secret)
            carrier = chance.choice(carriers)
            pieces = [carrier, said] if chance.random() < 0.5 else [said, carrier]
            yield Planted(language, kind, " ".join(pieces), secret)


def _digits(chance: Random, count: int) -> str:
    return "".join(str(chance.randrange(10)) for _ in range(count))


def _luhn(body: str) -> str:
    total = 0
    for at, digit in enumerate(reversed(body)):
        value = int(digit) * (2 - at % 2)
        total += value - 9 if value > 9 else value
    return body + str(-total % 10)


def _email(chance: Random) -> str:
    name = f"{chance.choice(_GIVEN)}.{chance.choice(_FAMILY)}".lower()
    host = chance.choice(("example.com", "mail.example.org", "qq.com", "corp.co.uk"))
    return f"{name}{chance.randrange(100)}@{host}"


def _phone_en(chance: Random) -> str:
    area = chance.choice(("212", "415", "707", "925", "312", "646"))
    middle = f"{chance.randrange(2, 10)}{_digits(chance, 2)}"
    last = _digits(chance, 4)
    shape = chance.choice(
        ("{}-{}-{}", "({}) {}-{}", "{}.{}.{}", "+1 {} {} {}", "{}{}{}")
    )
    if chance.random() < 0.25:
        return f"07700 9{_digits(chance, 2)}{_digits(chance, 3)}"
    return shape.format(area, middle, last)


def _phone_zh(chance: Random) -> str:
    start = chance.choice(("138", "139", "150", "186", "177", "199"))
    mobile = start + _digits(chance, 8)
    if chance.random() < 0.3:
        return f"010-{chance.choice('68')}{_digits(chance, 7)}"
    if chance.random() < 0.3:
        return f"+86 {mobile[:3]} {mobile[3:7]} {mobile[7:]}"
    return mobile


def _card(chance: Random) -> str:
    number = _luhn(chance.choice(("4", "51", "55", "6225")) + _digits(chance, 14))[:19]
    number = _luhn(number[:15])
    if chance.random() < 0.5:
        sign = chance.choice(" -")
        return sign.join(number[at : at + 4] for at in range(0, 16, 4))
    return number


def _id_en(chance: Random) -> str:
    if chance.random() < 0.4:
        return f"GB29NWBK601613{_digits(chance, 8)}"
    area = chance.randrange(100, 600)
    return f"{area}-{chance.randrange(10, 99)}-{chance.randrange(1000, 9999)}"


def _id_zh(chance: Random) -> str:
    body = (
        chance.choice(("110105", "310115", "440106", "330106", "510107"))
        + f"{chance.randrange(1950, 2008)}{chance.randrange(1, 13):02}"
        + f"{chance.randrange(1, 29):02}{_digits(chance, 3)}"
    )
    weights = (7, 9, 10, 5, 8, 4, 2, 1, 6, 3, 7, 9, 10, 5, 8, 4, 2)
    total = sum(int(d) * w for d, w in zip(body, weights, strict=True))
    return body + "10X98765432"[total % 11]


def _name_en(chance: Random) -> str:
    return f"{chance.choice(_GIVEN)} {chance.choice(_FAMILY)}"


def _given_en(chance: Random) -> str:
    return chance.choice(_GIVEN)


def _name_zh(chance: Random) -> str:
    signs = chance.choice((1, 2, 2))
    return chance.choice(_SURNAMES) + "".join(chance.choices(_SIGNS, k=signs))


def _address_en(chance: Random) -> str:
    flat = f" Apt {chance.randrange(1, 90)}" if chance.random() < 0.3 else ""
    street = f"{chance.choice(_STREETS)} {chance.choice(_WAYS)}"
    return f"{chance.randrange(1, 4000)} {street}{flat}"


def _address_zh(chance: Random) -> str:
    at = 2 * chance.randrange(len(_CITIES) // 2)
    return (
        f"{_CITIES[at : at + 2]}市{chance.choice(_DISTRICTS)}区"
        f"{chance.choice(_ROADS)}路{chance.randrange(1, 900)}号"
        f"{chance.randrange(1, 30)}栋{chance.randrange(101, 2900)}室"
    )


_MAKERS: Final[dict[tuple[str, str], Callable[[Random], str]]] = {
    ("en", "email"): _email,
    ("en", "phone"): _phone_en,
    ("en", "card"): _card,
    ("en", "id"): _id_en,
    ("en", "name"): _name_en,
    ("en", "bare"): _given_en,
    ("en", "address"): _address_en,
    ("zh", "email"): _email,
    ("zh", "phone"): _phone_zh,
    ("zh", "card"): _card,
    ("zh", "id"): _id_zh,
    ("zh", "name"): _name_zh,
    ("zh", "bare"): _name_zh,
    ("zh", "address"): _address_zh,
}
