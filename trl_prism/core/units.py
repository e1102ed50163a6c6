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
        "times",
        "over",
        "under",
        "per",
        "infinity",
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
    r"(?<=[\d})])\s+([A-Za-z]{2,}(?:\s+[A-Za-z]{2,}){0,3})$|(?<=\d)(cm|mm|km|kg|mph)$"
    r"|(?<=[\d})⟧])\s*([\u4e00-\u9fff]{1,6})$"
)


def without_unit(text: str) -> tuple[str, str, int]:
    """The text before the unit, the unit's canonical name, and the factor of a word such as million."""
    head, power = text, ""
    if match := _UNIT_POWER.search(text):
        before = text[: match.start()].rstrip()
        if before.endswith("⟧") or _TRAILING_WORD.search(before):
            head, power = before, match[1]
    currency = _CURRENCY.match(head)
    if currency:
        head = (currency[1] or "") + head[currency.end() :].strip()
    names: list[str] = []
    while match := _TRAILING_TEXT.search(head) or _TRAILING_WORD.search(head):
        names.insert(0, next(group for group in match.groups() if group is not None))
        head = head[: match.start()].rstrip()
    words = " ".join(names).casefold().split()
    if any(word.strip(".") in _NO_UNITS for word in words):
        return text, "", 1
    scale = _SCALES[words.pop(0)] if words and words[0] in _SCALES else 1
    if currency:
        return head, _UNITS[currency[2]], scale
    if not words:
        return head, "", scale
    return head, _unit(" ".join(words), power), scale


def _unit(name: str, power: str) -> str:
    words = name.strip().strip(".").casefold().split()
    if words and words[0] in ("square", "sq", "cubic"):
        power = {"square": "2", "sq": "2", "cubic": "3"}[words.pop(0)]
    singular = [word if word in _UNITS or len(word) < 4 else word.removesuffix("s") for word in words]
    known = " ".join(_UNITS.get(word, word) for word in singular).strip()
    return f"{known}^{power}" if known and power else known
