"""One spelling for what TeX, Unicode and habit spell in many ways."""

import re
import unicodedata


_VULGAR = {ord(c): " " + unicodedata.normalize("NFKC", c).replace("\u2044", "/") for c in "¼½¾⅐⅑⅒⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"}
_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻]+")
_CHARACTERS = {
    **dict.fromkeys(map(ord, "−–—﹣‐‑"), "-"),
    **dict.fromkeys(map(ord, "×⋅·∙"), r"\times "),
    **dict.fromkeys(map(ord, "、，"), ", "),
    **dict.fromkeys(map(ord, "；"), "; "),
    **dict.fromkeys(map(ord, "。"), "."),
    **dict.fromkeys(map(ord, "\u2061\u2062\u2063\u200b\u200c\u200d\u2060\ufeff\u200e\u200f"), None),
    ord("÷"): "/",
    ord("∕"): "/",
    ord("⁄"): "/",
    ord("π"): r"\pi ",
    ord("√"): r"\sqrt ",
    ord("∞"): r"\infty ",
    ord("°"): r"^\circ ",
    ord("∪"): r"\cup ",
    ord("±"): r"\pm ",
    ord("≤"): r"\le ",
    ord("≥"): r"\ge ",
    ord("≈"): r"\approx ",
    ord("∅"): r"\emptyset ",
    ord("∈"): r"\in ",
    ord("或"): "⟦or⟧",
    ord("和"): "⟦and⟧",
}
_PLAIN = (
    # Between digits, a comma in braces and a thin space before three digits separate thousands.
    (re.compile(r"(?<=\d)\{,\}(?=\d)|(?<=\d)\\,(?=\d{3}(?!\d))"), ""),
    (re.compile(r"\\(?:left|right|[bB]igg?[lrm]?|displaystyle|textstyle|limits|quad|qquad)(?![a-zA-Z])"), " "),
    (re.compile(r"\\[!,;:> ]|~|\\\(|\\\)|\\\[|\\\]"), " "),
    (re.compile(r"\\[dtc]frac(?![a-zA-Z])"), r"\\frac"),
    (re.compile(r"\\(?:cdot|ast)(?![a-zA-Z])"), r"\\times "),
    (re.compile(r"\\div(?![a-zA-Z])"), "/"),
    (re.compile(r"\\(?:leq|leqslant)(?![a-zA-Z])"), r"\\le "),
    (re.compile(r"\\(?:geq|geqslant)(?![a-zA-Z])"), r"\\ge "),
    (re.compile(r"\\varnothing(?![a-zA-Z])"), r"\\emptyset "),
    (re.compile(r"\\(?:simeq|thickapprox)(?![a-zA-Z])"), r"\\approx "),
    (re.compile(r"\\langle(?![a-zA-Z])"), "("),
    (re.compile(r"\\rangle(?![a-zA-Z])"), ")"),
    (re.compile(r"(?<=[\d.])\\dot\s*\{?(\d)\}?"), r"\\overline{\1}"),
    (re.compile(r"(?<=\d)\s*x\s*(?=10\s*\^)"), r"\\times "),
    (re.compile(r"(?<=\w)\*\*(?=\w)"), "^"),
    (re.compile(r"\\(?:lbrace)(?![a-zA-Z])"), r"\\{"),
    (re.compile(r"\\(?:rbrace)(?![a-zA-Z])"), r"\\}"),
    (re.compile(r"\^\s*(?:\{\s*\\circ\s*\}|\\circ)|\\degree(?![a-zA-Z])"), "⟦°⟧"),
    (re.compile(r"\\%|%"), "⟦%⟧"),
    (re.compile(r"\\\$"), "⟦usd⟧"),
    (re.compile(r"€"), "⟦euro⟧"),
    (re.compile(r"£"), "⟦sterling⟧"),
    (re.compile(r"[¥￥]"), "⟦yuan⟧"),
    (re.compile(r"\$"), " "),
    (re.compile(r"\{,\}"), ","),
)
# Commands that people write without their backslash.
_BARE = re.compile(r"(?<![\\a-zA-Z])(sqrt|pi|sin|cos|tan|cot|sec|csc|log|ln)(?![a-zA-Z])|(?<![\\a-zA-Z])(infinity)\b")
# By TeX's rules the root of 1, times 2; what is meant is the root of 12.
_ROOT_OF_DIGITS = re.compile(r"\\sqrt\s*(\d+(?:\.\d+)?)")
_BRACKETED = re.compile(r"(?:\\sqrt|\^)\s*\(")
_TEXT = re.compile(r"\\(text|textbf|textit|textrm|mathrm|mathbf|mathit|mathsf|mbox|operatorname)\s*\{([^{}]*)\}")


# A mixed number in front of something: 2\\frac{1}{2}\\pi is 2.5 pi, as 2\\frac{1}{2} is 2.5.
_MIXED_FACTOR = re.compile(r"(?<![\w.^_})])(\d+)\\frac\{(\d+)\}\{(\d+)\}")
_SIMPLE_SUM = re.compile(r"\((\w+(?:\+\w+)+)\)")

# The end of a matrix row, `\\\\`, of which every other rule keeps off.
ROW_END = "⏎"


def _as_fraction(match: re.Match[str]) -> str:
    whole, top, bottom = (int(group) for group in match.groups())
    return f"\\frac{{{whole * bottom + top}}}{{{bottom}}}" if 0 < top < bottom else match[0]


def _words_or_symbol(match: re.Match[str]) -> str:
    """Words stand between marks. A symbol in upright or bold type is that symbol: the imaginary unit, e, a vector."""
    font, content = match[1], match[2]
    if any(character.isdigit() or character in "⟦⟧" for character in content):
        return f" {content} "  # mathematics in \\text: 5 cm, \\$18
    symbol = content.startswith("\\") or (len(content) == 1 and (font == "mathbf" or content in "ije"))
    return content if symbol and font.startswith("math") else f"⟦{' '.join(content.split())}⟧"


def normalise(answer: str) -> str:
    """One spelling of an answer's text. Words out of `\\text` and its relatives stand between ⟦ and ⟧."""
    text = answer.replace("⟦", "").replace("⟧", "").replace("\\\\", ROW_END).translate(_VULGAR)
    text = _SUPERSCRIPT.sub(lambda match: f"^{{{unicodedata.normalize('NFKC', match[0])}}}", text)
    text = unicodedata.normalize("NFKC", text.translate(_CHARACTERS)).translate(_CHARACTERS)
    for pattern, replacement in _PLAIN:
        text = pattern.sub(replacement, text)
    text = _TEXT.sub(_words_or_symbol, text)
    text = "".join(_commands(part) if i % 2 == 0 else f"⟦{part}⟧" for i, part in enumerate(re.split("[⟦⟧]", text)))
    text = re.sub(r"\s*\^\s*(?:\{\s*((?:\\prime\s*)+)\}|(\\prime))", lambda m: "'" * m[0].count("prime"), text)
    text = " ".join(text.split())
    if text.startswith("**") and text.endswith("**"):  # bold in Markdown
        text = text.strip("* ")
    # A sentence's end is not part of an answer, a decimal point without digits neither.
    return text.removesuffix(".").strip()


def _commands(text: str) -> str:
    r"""Plain-text mathematics as TeX: `2sqrt(3)` as `2\sqrt{3}`, `x^(1/2)` as `x^{1/2}`."""
    text = _BARE.sub(lambda match: "\\infty " if match[2] else f"\\{match[1]} ", text)
    text = _ROOT_OF_DIGITS.sub(r"\\sqrt{\1}", text)
    done, rest = "", text
    while match := _BRACKETED.search(rest):
        opening = match.end() - 1
        end = closes(rest[opening:])
        if end < 0 or end == 1:
            break
        done += rest[:opening] + "{"
        rest = rest[opening + 1 : opening + end] + "}" + rest[opening + end + 1 :]
    return done + rest


def closes(text: str) -> int:
    """Where the bracket that opens the text is closed; -1 if it is not. Round and square close each other."""
    depth = 0
    for i, character in enumerate(text):
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
            if depth == 0:
                return i
    return -1


def packed(text: str) -> str:
    """A formula without what does not change it: spaces, except those that end a command, and braces around all."""
    text = re.sub(r"([_^])(\d)\s+(?=\d)", r"\1{\2}", text)
    text = re.sub(r"(?<=\d)\s+(?=\d)", "␣", text)  # 1 2 is not 12
    text = re.sub(r"(\\[a-zA-Z]+)\s+(?![a-zA-Z])", r"\1", text)
    text = re.sub(r"(?<!\\)\s+", "", re.sub(r"(\\[a-zA-Z]+)\s+(?=[a-zA-Z])", "\\1\x00", text)).replace("\x00", " ")
    text = re.sub(r"\\frac(\d)(\d)", r"\\frac{\1}{\2}", text)
    text = re.sub(r"\\frac(\d)\{", r"\\frac{\1}{", text)
    text = re.sub(r"\\frac(\{\w+\})(\w)", r"\\frac\1{\2}", text)
    text = _MIXED_FACTOR.sub(_as_fraction, text)
    text = re.sub(r"\\sqrt(\w)", r"\\sqrt{\1}", text)
    text = re.sub(r"([_^])\{(\w)\}(?!\d)", r"\1\2", text)
    # The order of simple terms, which a high power or a factorial hides from what computes.
    text = _SIMPLE_SUM.sub(lambda match: f"({'+'.join(sorted(match[1].split('+')))})", text)
    while text.startswith("{") and text.endswith("}") and closes(text) == len(text) - 1:
        text = text[1:-1]
    return text.replace("⟦", "").replace("⟧", "")
