r"""From a completion to its answer: what the last complete box holds.

| completion | answer |
|---|---|
| `so \boxed{7}` | `7` |
| `\boxed{1}, no, \boxed{2}` | `2`: the last one counts |
| `\boxed{\frac{1}{2}}` | `\frac{1}{2}`: any nesting |
| `\boxed{\boxed{5}}`, `\boxed{\fbox{5}}` | `5`: boxes around the whole answer fall away |
| `\boxed{\{1, 2\}}` | `\{1, 2\}`: escaped braces are text |
| `the set { and \boxed{4}` | `4`: stray braces outside do no harm |
| `\boxed{3} and \boxed{` | `3`: a box that never closes is none |
| `\boxed{3 + \boxed{4}` | `4`: nor does it hide a later one |
| `\boxed{\frac{1}{2}` | none: the box never closes |
| `\boxed{1} then \boxed{}` | none: the last box is empty, and an earlier guess is not the answer |
| `\boxed{\ }`, `\boxed{\text{}}` | none: nothing is shown |
| `\boxed 7` | none: TeX would box one character, so `\boxed 12` could mean 1 or 12 |
| `\\boxed{5}` | `5`: a backslash doubled, as in JSON |
| `<think>\boxed{1}</think> \boxed{2}` | `2`: thinking does not count |
| `<think>\boxed{1}</think> so it is 1` | none: nothing was answered after thinking |
| `<think>\boxed{1}` | none: cut off while thinking |
| `\boxed{4} <think>` | `4`: answered before |
"""

import re


# One alternative per event: a box opens, an escaped character, a brace. Every character is looked at once.
_EVENT = re.compile(r"(?P<box>\\{1,2}(?:boxed|fbox)\s*\{)|\\.|(?P<open>\{)|(?P<close>\})", re.DOTALL)
# A box that shows nothing.
_BLANK = re.compile(r"(?:\s|~|\\(?:[ ,;:!]|\Z)|\\q?quad(?![a-zA-Z])|\{\s*\}|\\(?:text|mathrm|mathbf|mbox)\s*\{\s*\})*")
_THINK_OPEN, _THINK_CLOSE = "<think>", "</think>"


def extract_answer(completion: str) -> str | None:
    r"""The answer in a completion, `None` where there is none. Linear in the length of the text.

    The table at the head of this module says what each form gives.

    Example:

    ```python
    >>> extract_answer(r"first \boxed{1}, then \boxed{\frac{1}{2}}")
    '\\frac{1}{2}'
    >>> extract_answer("it is 7") is None
    True

    ```
    """
    text = after_thinking(completion)
    return None if text is None else last_box(text)


def after_thinking(completion: str) -> str | None:
    """What follows the last thinking block; `None` where the completion ends inside of one."""
    _, _, tail = completion.rpartition(_THINK_CLOSE)
    before, opened, _ = tail.partition(_THINK_OPEN)
    # Thinking comes first: a mention of the tag after an answer does not take the answer back.
    return before if before.strip() or not opened else None


def last_box(text: str) -> str | None:
    r"""The content of the last complete `\boxed` or `\fbox`, `None` without one or where it is empty."""
    opened: list[tuple[int, int]] = []  # of every open brace: where its box starts (-1 without one), where it opens
    # Of the last complete box: where the whole starts and ends, and the span of its content.
    last: tuple[int, int, tuple[int, int]] | None = None
    for event in _EVENT.finditer(text):
        if event["box"]:
            opened.append((event.start(), event.end()))
        elif event["open"]:
            opened.append((-1, event.end()))
        elif event["close"] and opened:
            box, start = opened.pop()
            if box >= 0:
                end = event.start()
                # A box that holds nothing but a box is that box. Looked at here, while its parts are at hand, so that
                # deep nesting stays linear: no two levels look at the same characters.
                alone = (
                    last is not None
                    and last[0] >= start
                    and not text[start : last[0]].strip()
                    and not text[last[1] : end].strip()
                )
                span = (start, end) if not alone or last is None else last[2]
                last = (box, event.end(), span)
    if last is None:
        return None
    content = text[slice(*last[2])].strip()
    return None if _BLANK.fullmatch(content) else content
