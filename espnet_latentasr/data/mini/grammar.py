"""Sentences of the mini task; knows words and chance, nothing about audio or files.

Everyday commands, number phrases and telephone-menu phrases.  The vocabulary is small on purpose
(about 200 words) but full of confusable pairs (thirteen/thirty, ann/hannah, b/d), so that a small
recogniser makes real mistakes.
"""

from __future__ import annotations

import random
from collections.abc import Collection

DIGITS = "zero one two three four five six seven eight nine".split()
TEENS = (
    "ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen".split()
)
TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
NAMES = "anna hannah ben dan jan john joan mary maria david daisy peter rita".split()
ROOMS = "kitchen bedroom bathroom garage garden office hallway".split()
THINGS = "light lights heater fan radio door window".split()
DAYS = "monday tuesday wednesday thursday friday saturday sunday".split()
SECRETS = ["password", "pin number", "extension", "account number", "agent number", "mailbox"]
KEYS = ["pound", "star", "hash"]
ACTIONS = [
    "delete this message",
    "save this message",
    "listen to the message",
    "repeat this message",
    "return to the main menu",
    "change your greeting",
    "reach an operator",
    "leave the conference",
    "accept this call",
    "hear the next message",
]
STATES = ["locked", "unlocked", "full", "muted", "not available", "invalid", "busy now"]
LINES = ["the conference", "your mailbox", "that extension", "this line", "the directory"]


def number(rng: random.Random) -> str:
    """Draw a cardinal from zero to ninety-nine, in words."""
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(DIGITS)
    if kind < 0.6:
        return rng.choice(TEENS)
    unit = f" {rng.choice(DIGITS[1:])}" if rng.random() < 0.6 else ""
    return rng.choice(TENS) + unit


def _digit_string(rng: random.Random) -> str:
    return " ".join(rng.choice(DIGITS) for _ in range(rng.randint(3, 7)))


def _switch(rng: random.Random) -> str:
    state = rng.choice(["on", "off"])
    return f"turn {state} the {rng.choice(ROOMS)} {rng.choice(THINGS)}"


def _set_level(rng: random.Random) -> str:
    return f"set the {rng.choice(ROOMS)} {rng.choice(THINGS)} to {number(rng)}"


def _call(rng: random.Random) -> str:
    return f"call {rng.choice(NAMES)} at {number(rng)} {rng.choice(DIGITS)}"


def _send(rng: random.Random) -> str:
    return f"send {number(rng)} to {rng.choice(NAMES)} and {rng.choice(NAMES)}"


def _play(rng: random.Random) -> str:
    kind = rng.choice(["track", "song", "channel"])
    return f"play {kind} {number(rng)} in the {rng.choice(ROOMS)}"


def _timer(rng: random.Random) -> str:
    if rng.random() < 0.5:
        return f"set a timer for {number(rng)} {rng.choice(['seconds', 'minutes', 'hours'])}"
    return f"wake me on {rng.choice(DAYS)} at {rng.choice(DIGITS[1:])} {rng.choice(TENS[:4])}"


def _enter(rng: random.Random) -> str:
    secret, key = rng.choice(SECRETS), rng.choice(KEYS)
    return f"please enter your {secret} followed by the {key} key"


def _press(rng: random.Random) -> str:
    return f"press {rng.choice([*DIGITS, 'star', 'pound'])} to {rng.choice(ACTIONS)}"


def _messages(rng: random.Random) -> str:
    kind = rng.choice(["new", "old", "urgent"])
    return f"you have {number(rng)} {kind} messages from {rng.choice(NAMES)}"


def _status(rng: random.Random) -> str:
    tail = rng.choice(["", " please try again", " please hold", " thank you", " goodbye"])
    return f"{rng.choice(LINES)} is {rng.choice(STATES)}{tail}"


TEMPLATES = (
    (_digit_string, 0.26),
    (_switch, 0.10),
    (_set_level, 0.11),
    (_call, 0.09),
    (_send, 0.08),
    (_play, 0.09),
    (_timer, 0.07),
    (_enter, 0.03),
    (_press, 0.07),
    (_messages, 0.07),
    (_status, 0.03),
)


def sentence(rng: random.Random) -> str:
    """Draw one lower-case sentence without punctuation."""
    makers, weights = zip(*TEMPLATES)
    return rng.choices(makers, weights)[0](rng)


def sentences(
    count: int, seed: int, *, exclude: Collection[str] = (), distinct: bool = False
) -> list[str]:
    """Draw ``count`` sentences, none of which is in ``exclude``.

    Args:
        distinct: also refuse a sentence drawn before in this call (for test sets).
    """
    rng = random.Random(f"mini-grammar-{seed}")
    refused = set(exclude)
    drawn: list[str] = []
    while len(drawn) < count:
        candidate = sentence(rng)
        if candidate in refused:
            continue
        drawn.append(candidate)
        if distinct:
            refused.add(candidate)
    return drawn


def training_words() -> list[str]:
    """All words the grammar can say, sorted; the tokenizer is trained on them."""
    words = {*DIGITS, *TEENS, *TENS, *NAMES, *ROOMS, *THINGS, *DAYS, *KEYS}
    for phrase in [*SECRETS, *ACTIONS, *STATES, *LINES]:
        words.update(phrase.split())
    words.update(
        "turn on off the set to call at send and play track song channel in a timer for seconds "
        "minutes hours wake me please enter your followed by key press you have new old urgent "
        "messages from is try again hold thank goodbye".split()
    )
    return sorted(words)
