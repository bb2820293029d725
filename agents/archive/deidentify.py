"""Remove what names a person from a text: the interface, and one by patterns."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple, Protocol

from turnstate.agents.archive.numbers import is_bank_account, is_card, is_resident_id


class Finding(NamedTuple):
    """Where an identifier stands in a text.

    Attributes:
        start: Of its first character.
        end: Behind its last character.
        kind: email, phone, card, id, name, address, url or ip.
    """

    start: int
    end: int
    kind: str


class Deidentifier(Protocol):
    """Find identifiers. Pure: equal texts have equal findings."""

    @property
    def name(self) -> str:
        """Return what it is and of which version: audits keep it."""
        ...

    def find(self, text: str) -> Sequence[Finding]:
        """Return what names a person, in order, none over another."""
        ...


class Cleaned(NamedTuple):
    """A text without its identifiers.

    Attributes:
        text: With `[kind]` in the place of each.
        removed: How many of each kind.
    """

    text: str
    removed: Counter[str]


def clean(text: str, deidentifier: Deidentifier) -> Cleaned:
    """Return a text without what a deidentifier finds in it.

    Example:
        >>> clean("write to a.b@example.com", PatternDeidentifier(lambda _: ()))[0]
        'write to [email]'
    """
    pieces: list[str] = []
    removed: Counter[str] = Counter()
    at = 0
    for start, end, kind in deidentifier.find(text):
        pieces += (text[at:start], f"[{kind}]")
        removed[kind] += 1
        at = end
    return Cleaned("".join((*pieces, text[at:])), removed)


Phones = Callable[[str], Iterable[tuple[int, int]]]
"""Finds telephone numbers; `phones.find_phones` does."""

_EMAIL: Final = re.compile(r"[\w.+%-]{1,64}@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_URL: Final = re.compile(r"(?:https?|ftp)://[^\s<>\"'\uff0c\u3002]+|www\.[^\s<>\"'\uff0c\u3002]+")
_IP: Final = re.compile(
    r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"
    r"|(?<![\w:])(?:[0-9A-Fa-f]{1,4}:){4,7}[0-9A-Fa-f]{1,4}(?![\w:])"
)
_DIGITS: Final = re.compile(r"(?<![\d])\d(?:[ -]?\d){11,18}(?!\d)", re.ASCII)
_IBAN: Final = re.compile(
    r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,3})?\b"
)
_SSN: Final = re.compile(r"(?<!\d)\d{3}-\d{2}-\d{4}(?!\d)", re.ASCII)
_RESIDENT: Final = re.compile(r"(?<!\d)\d{17}[\dXx](?![\dA-Za-z])", re.ASCII)
_LONG: Final = re.compile(
    r"(?<!\d)\d{8,}(?!\d)|\b(?=\w*\d)(?=\w*[A-Za-z])\w{12,}\b"
    r"|\b[A-Za-z]\w{0,64}_\w{0,64}\d{3,}\b",
    re.ASCII,
)
"""Any long number, and any long word of letters and digits, is taken for an id."""

_WAY: Final = (
    "Street|St|Avenue|Ave|Road|Rd|Lane|Ln|Drive|Dr|Boulevard|Blvd|Court|Ct|Way|Place|"
    "Pl|Square|Sq|Terrace|Close|Crescent|Highway|Hwy|Parkway|Pkwy|Circle|Row|Passage"
)
_ADDRESS_EN: Final = re.compile(
    rf"\b\d{{1,5}}[A-Za-z]?(?:\s+[\w.']+){{0,4}}?\s+(?:{_WAY})\b\.?"
    r"(?:,?\s*(?:#|Apt|Apartment|Suite|Ste|Unit|Flat)\.?\s*\w+)?",
    re.IGNORECASE,
)
_POSTCODE: Final = re.compile(r"\b[A-Z]{1,2}\d[A-Z\d]? ?\d[A-Z]{2}\b|\b\d{5}-\d{4}\b")
_HAN: Final = "\u4e00-\u9fff"
_NUMBER_ZH: Final = r"[甲乙丙丁]?[\dA-Z一二三四五六七八九十百]+(?:-\d+)*"
_INSIDE_ZH: Final = (
    rf"(?:院|楼)?(?:{_NUMBER_ZH}(?:号楼|号院|栋|幢|座|单元|层|楼|室|号|院))*"
)
_ADDRESS_ZH: Final = re.compile(
    rf"[{_HAN}]{{2,8}}?(?:省|自治区|市|州|区|县|旗)[{_HAN}\dA-Za-z()\uff08\uff09-]{{1,40}}?"
    rf"{_NUMBER_ZH}号{_INSIDE_ZH}"
    rf"|[{_HAN}]{{1,14}}?(?:路|街|道|巷|弄|胡同|里|沿|条|园|桥|坊|高速|段){_NUMBER_ZH}号?"
    rf"{_INSIDE_ZH}"
)

_CUES_EN: Final = (
    r"my name is|name is|name's|i am|i'm|this is|speak(?:ing)? (?:to|with)|called|"
    r"mr|mrs|ms|miss|dr|prof|sir|madam"
)
_WORD: Final = r"[A-Z\u00c0-\u00de][\w'\u2019-]+"
_NAME_CUE: Final = re.compile(
    rf"\b(?i:{_CUES_EN})\.?\s+({_WORD}(?:\s+{_WORD}){{0,3}})"
)
_NAME_FIELD: Final = re.compile(
    r"""(?i:(?:first|last|full|family|given|middle|user|customer|passenger)_?)"""
    r"""name\\*["']?\s*[:=]\s*\\*["']?([^"'\\,}\n]{1,64})"""
)
"""A field of JSON, or of something like it, that says that it is a name."""

_NAME_RUN: Final = re.compile(rf"\b{_WORD}(?:\s+(?:[A-Z]\.\s+)?{_WORD}){{1,3}}")
"""Two capitalised words in a row: a person as often as not. What is no person is
lost, too, which costs the archive little."""

_SURNAMES: Final = (
    "王李张刘陈杨黄赵吴周徐孙马朱胡郭何林罗高郑梁谢宋唐许邓冯韩曹曾彭萧蔡潘田董袁于余"
    "叶蒋杜苏魏程吕丁沈任姚卢傅钟姜崔谭廖范汪陆金石戴贾韦夏邱方侯邹熊孟秦白江阎薛尹段"
    "雷黎史龙陶贺顾毛郝龚邵万钱严覃武戚莫孔向汤"
)
_CUES_ZH: Final = (
    "我叫|我是|名字叫|名字是|姓名是|姓名[:\uff1a]?|联系人是?|预订人是?|预定人是?|收件人是?|"
    "客人是?|叫做|昨天|今天|和|跟|给|找"
)
_NAME_ZH: Final = re.compile(
    rf"(?:{_CUES_ZH})((?:欧阳|司马|上官|诸葛|[{_SURNAMES}])[{_HAN}]{{1,2}}?)"
    rf"(?=[^{_HAN}]|说|的|是|先生|女士|小姐|$)"
    rf"|([{_SURNAMES}][{_HAN}]{{0,2}})(?=先生|女士|小姐|老师|医生|师傅|经理|总(?![{_HAN}]))"
)
_WHOLE_ZH: Final = re.compile(
    rf"\s*(?:欧阳|司马|上官|诸葛|[{_SURNAMES}])[{_HAN}]{{1,2}}\s*"
)
"""A text that is nothing but a surname and one or two signs."""


class PatternDeidentifier:
    """Find identifiers by their form and, where they have one, their check digit.

    Telephone numbers are found by a library (`phones`). Names are found where
    a cue stands before them, or two capitalised words stand together: about
    what no list or model is needed for. How much it misses is in
    docs/bench.md; so nothing that is free text goes into an archive because
    it was cleaned: cleaning is the second fence, leaving out is the first.

    Args:
        phones: Finds telephone numbers.

    Example:
        >>> found = PatternDeidentifier(lambda _: ()).find("我叫王伟 住中山路12号")
        >>> [(kind, start, end) for start, end, kind in found]
        [('name', 2, 4), ('address', 5, 12)]
    """

    name = "patterns/1"

    def __init__(self, phones: Phones) -> None:
        self._phones = phones

    def find(self, text: str) -> Sequence[Finding]:
        """Return what names a person, in order, none over another."""
        ranked = [(each, at) for at, each in enumerate(self._all(text))]
        found: list[tuple[Finding, int]] = []
        for finding, rank in sorted(ranked):
            if not found or finding.start >= found[-1][0].end:
                found.append((finding, rank))
                continue
            # Two that overlap go as one, under the name of the surer.
            before, surer = found[-1]
            kind = before.kind if surer < rank else finding.kind
            end = max(before.end, finding.end)
            found[-1] = (Finding(before.start, end, kind), min(surer, rank))
        return [finding for finding, _ in found]

    def _all(self, text: str) -> Iterator[Finding]:
        """Yield everything that may be one, the surest kinds first."""
        yield from _matches(text, "email", _EMAIL)
        yield from _matches(text, "url", _URL)
        yield from _matches(text, "id", _RESIDENT, is_resident_id)
        yield from _matches(text, "id", _IBAN, is_bank_account)
        yield from _matches(text, "card", _DIGITS, is_card)
        yield from _matches(text, "id", _SSN)
        for start, end in self._phones(text):
            yield Finding(start, end, "phone")
        yield from _matches(text, "ip", _IP)
        yield from _matches(text, "address", _ADDRESS_EN)
        yield from _matches(text, "address", _ADDRESS_ZH)
        yield from _matches(text, "address", _POSTCODE)
        # A number before a card makes one run of both: no check digit holds then.
        yield from _matches(text, "id", _DIGITS)
        yield from _matches(text, "id", _LONG)
        for pattern in (_NAME_CUE, _NAME_FIELD, _NAME_ZH):
            for match in pattern.finditer(text):
                group = 1 if match[1] else 2
                yield Finding(match.start(group), match.end(group), "name")
        yield from _matches(text, "name", _NAME_RUN)
        if _WHOLE_ZH.fullmatch(text):
            yield Finding(0, len(text), "name")


def _matches(
    text: str,
    kind: str,
    pattern: re.Pattern[str],
    holds: Callable[[str], bool] | None = None,
) -> Iterator[Finding]:
    for match in pattern.finditer(text):
        if holds is None or holds(match[0]):
            yield Finding(match.start(), match.end(), kind)
