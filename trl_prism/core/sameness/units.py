"""What stands after a number: its unit, or a word that is a factor of it."""

import re


FUNCTIONS = frozenset(
    [
        "sin",
        "cos",
        "tan",
        "cot",
        "sec",
        "csc",
        "log",
        "ln",
        "exp",
        "sqrt",
        "pi",
        "arcsin",
        "arccos",
        "arctan",
        "max",
        "min",
        "mod",
        "gcd",
        "lcm",
        "det",
    ]
)
_UNITS = {
    "°": "°", "degree": "°", "deg": "°", "%": "%", "percent": "%", "$": "$", "dollar": "$", "usd": "$",
    "cent": "cent", "mm": "mm", "millimeter": "mm", "millimetre": "mm", "cm": "cm", "centimeter": "cm",
    "centimetre": "cm", "m": "m", "meter": "m", "metre": "m", "km": "km", "kilometer": "km", "kilometre": "km",
    "inch": "inch", "inche": "inch", "in": "inch", "foot": "foot", "feet": "foot", "ft": "foot", "mile": "mile",
    "g": "g", "gram": "g", "kg": "kg", "kilogram": "kg", "pound": "pound", "lb": "pound", "s": "s", "sec": "s",
    "second": "s", "min": "minute", "minute": "minute", "h": "hour", "hr": "hour", "hour": "hour", "day": "day",
    "week": "week", "month": "month", "year": "year", "unit": "", "mph": "mph", "liter": "liter", "litre": "liter",
}  # fmt: skip
_UNITS |= {"usd": "$", "euro": "euro", "sterling": "sterling", "yuan": "yuan", "rmb": "yuan", "radian": "radian"}
_UNITS |= {"rad": "radian", "hrs": "hour", "lbs": "pound", "mins": "minute", "secs": "s"}
_UNITS |= {"元": "yuan", "米": "m", "厘米": "cm", "毫米": "mm", "千米": "km", "公里": "km", "克": "g", "千克": "kg"}
_UNITS |= {"度": "°", "秒": "s", "分钟": "minute", "小时": "hour", "天": "day", "年": "year", "个月": "month"}
_UNITS |= {"平方厘米": "cm^2", "平方米": "m^2", "立方厘米": "cm^3", "立方米": "m^3"}
KNOWN_UNITS = {*_UNITS.values(), *(f"{unit}^{power}" for unit in _UNITS.values() for power in "23")} - {""}
_SCALES = {"hundred": 100, "thousand": 1000, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_NO_UNITS = FUNCTIONS | frozenset(
    [
        "squared",
        "cubed",
        "factorial",
        "below",
        "above",
        "zero",
        "more",
        "less",
        "than",
        "minus",
        "plus",
        "over",
        "under",
        "infinity",
        "negative",
        "positive",
        "mod",
        "modulo",
        "base",
        "binary",
        "octal",
        "decimal",
        "hexadecimal",
        "e",
        "i",
        "x",
        "y",
        "z",
    ]
)
_CURRENCY = re.compile(r"(-?)\s*⟦(usd|euro|sterling|yuan)⟧\s*")
_UNIT_POWER = re.compile(r"\s*\^\s*\{?\s*(-?\d)\s*\}?$")
_TRAILING_TEXT = re.compile(r"\s*⟦([^⟦⟧]*)⟧$")
_TRAILING_WORD = re.compile(
    r"(?<=[\d})])\s+([A-Za-z]{2,}(?:/[A-Za-z]+)?(?:\s+[A-Za-z]{2,}){0,3})$|(?<=\d)(cm|mm|km|kg|mph|km/h|m/s)$"
    r"|(?<=[\d})⟧])\s*([\u4e00-\u9fff]{1,6})$"
)
_CHINESE = re.compile(r"([百千万亿]*)([\u4e00-\u9fff]*)")
_CHINESE_SCALES = {"百": 100, "千": 1000, "万": 10**4, "亿": 10**8}
_LETTERS = re.compile(r"[^\W\d_]+(?:[/.'-][^\W\d_]+)*\.?")
# Parts of a whole are factors, no units: three tenths are not 3.
_PART = re.compile(
    r"half|halves|(?:third|quarter|fourth|(?:fif|six|seven|eigh|nin|ten|\w*(?:hundred|thousand|lion))th)s?"
)
_LINKS = frozenset(("per", "of", "a", "an", "the", "each", "every"))


def without_unit(text: str) -> tuple[str, str, int]:
    """The text before the unit, the unit's canonical name, and the factor of a word such as million.

    Words that are no unit, such as a product of two variables, leave the text as it is.
    """
    head, power = text, ""
    if match := _UNIT_POWER.search(text):
        before = text[: match.start()].rstrip()
        if before.endswith("⟧") or _TRAILING_WORD.search(before):
            head, power = before, match[1]
    currency = _CURRENCY.match(head)
    if currency:
        head = (currency[1] or "") + head[currency.end() :].strip()
    words: list[str] = []
    while True:
        if match := _TRAILING_TEXT.search(head):
            shortest = 3
        elif match := _TRAILING_WORD.search(head):
            shortest = 4  # without \\text, three letters may be variables
        else:
            break
        found = next(group for group in match.groups() if group is not None).split()
        # 5 M is five million, or a variable; not 5 m.
        if not all(_may_be_unit(word.casefold(), shortest) for word in found) or any(
            len(word) == 1 and word.isupper() for word in found
        ):
            return text, "", 1
        words = [word.casefold() for word in found] + words
        head = head[: match.start()].rstrip()
    scale = 1
    while words and _singular(words[0]) in _SCALES:
        scale *= _SCALES[_singular(words.pop(0))]
    if words and (chinese := _CHINESE.fullmatch(words[0])):
        for character in chinese[1]:
            scale *= _CHINESE_SCALES[character]
        words = [chinese[2], *words[1:]] if chinese[2] else words[1:]
    if currency:
        return head, " ".join([_UNITS[currency[2]], *words]), scale
    return head, _unit(words, power), scale


def _singular(word: str) -> str:
    return word.removesuffix("s") if len(word) > 3 else word


def _may_be_unit(word: str, shortest: int) -> bool:
    bare = word.strip(".")
    if bare in _UNITS or _singular(bare) in _UNITS or bare in _LINKS or word in ("°", "%", "$"):
        return True
    if bare in _NO_UNITS or _PART.fullmatch(bare) or not _LETTERS.fullmatch(word):
        return False
    return len(bare) >= shortest or _CHINESE.fullmatch(bare) is not None


def _unit(words: list[str], power: str) -> str:
    words = [word.strip(".") for word in words]
    if words and words[0] in ("square", "sq", "cubic"):
        power = {"square": "2", "sq": "2", "cubic": "3"}[words.pop(0)]
    known = " ".join(_UNITS.get(word, _UNITS.get(_singular(word), _singular(word))) for word in words).strip()
    return f"{known}^{power}" if known and power else known
