"""Passages that hide a key and ask for it later: what the full-attention layers are for.

A passage plants keys ("The secret key of Anna is 4821."), goes on with other sentences and ends in
questions about the keys. The window is 128 tokens, so only full layers can bring back a key planted
earlier than that.
"""

from facts import PEOPLE, WORDS, invented_word
from harmony import ENDOFTEXT, GIVEN, PRODUCED

# what is planted: (noun, is it a word)
KINDS = [("secret key", False), ("secret key", False), ("code", False), ("locker number", False),
         ("badge number", False), ("password", True), ("favourite word", True)]

VERBS = "stood lay waited slept rested stayed".split()
PLACES = "near behind under above beside before".split()
ADJECTIVES = "old small bright quiet heavy green cold strange tall simple".split()


class Key:
    """One planted fact: the noun, the owner, the value."""

    def __init__(self, rng, owner):
        self.noun, is_word = rng.choice(KINDS)
        self.owner = owner
        self.value = rng.choice(WORDS) if is_word else str(rng.randint(1000, 9999))

    @property
    def stem(self):
        return f"The {self.noun} of {self.owner} is"

    @property
    def sentence(self):
        return f"{self.stem} {self.value}."

    @property
    def question(self):
        return f"What is the {self.noun} of {self.owner}?"


def filler_sentence(rng, facts):
    """A sentence that says nothing about any key: half of them are facts in their training phrasings."""
    if rng.random() < 0.5:
        fact = facts.draw(rng)
        templates = fact.phrasings("statements", held_out=False)
        if templates:
            return fact.fill(rng.choice(templates)).replace("\n", " ")
    a, b = rng.sample(WORDS, 2)
    return (f"The {rng.choice(ADJECTIVES)} {a} {rng.choice(VERBS)} {rng.choice(PLACES)} "
            f"the {rng.choice(ADJECTIVES)} {b}.")


def filler(rng, facts, encoder, tokens):
    """Sentences of about that many tokens together (at least `tokens`, unless that is 0)."""
    sentences, length = [], 0
    while length < tokens:
        sentence = filler_sentence(rng, facts)
        sentences.append(sentence)
        length += len(encoder.ids(" " + sentence))
    return sentences


def draw_keys(rng, count):
    owners = [invented_word(rng) if rng.random() < 0.2 else name for name in rng.sample(PEOPLE, count)]
    return [Key(rng, owner) for owner in dict.fromkeys(owners)]


def passage(rng, facts, encoder, distance, others):
    """(sentences, key): the key stands `distance` tokens before the end, `others` keys anywhere."""
    key, *rest = draw_keys(rng, 1 + others)
    after = filler(rng, facts, encoder, distance)
    before = filler(rng, facts, encoder, rng.choice([0, 0, 20, 60]))
    sentences = [*before, key.sentence, *after]
    for other in rest:
        sentences.insert(rng.randrange(len(sentences) + 1), other.sentence)
    return sentences, key, rest


def raw_document(rng, facts, encoder, length):
    """Prose: keys, filler, then the same sentences once more, in which the values can be known."""
    count = rng.choice([1, 2, 4, 6, 10])
    keys = draw_keys(rng, count)
    budget = max(0, length - 26 * count)
    cuts = sorted(rng.randint(0, budget) for _ in range(rng.choice([1, 1, count])))
    gaps = [b - a for a, b in zip([0] + cuts, cuts + [budget])]
    planted = [[] for _ in range(len(gaps) - 1)]
    for key in keys:
        rng.choice(planted).append(key)
    spans, first = [], True
    for gap, group in zip(gaps, planted + [[]]):
        text = " ".join(filler(rng, facts, encoder, gap) + [key.sentence for key in group])
        if text:
            spans.append((text if first else " " + text, GIVEN))
            first = False
    rng.shuffle(keys)
    for key in keys:
        spans += [((" " if spans else "") + key.stem, GIVEN), (f" {key.value}.", PRODUCED)]
    return spans + [(ENDOFTEXT, GIVEN)]


def repeat_document(rng, length):
    """A list of words, said twice: the plainest exercise in copying."""
    count = max(3, min(length // 5, 60))
    text = " ".join(rng.choices(WORDS + PEOPLE, k=count))
    if rng.random() < 0.5:
        text = " ".join(invented_word(rng) for _ in range(count // 2 + 1))
    return [("Words: " + text + ".", GIVEN), (" Again:", GIVEN), (" " + text + ".", PRODUCED), (ENDOFTEXT, PRODUCED)]
