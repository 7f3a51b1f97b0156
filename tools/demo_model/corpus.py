"""The training corpus: documents drawn at random, packed into sequences. Pure Python, seeded.

Kinds of documents: raw prose about facts, harmony conversations (facts, small talk, function calls,
keys hidden in long passages), and raw recall exercises. A sequence starts with a document, so that
every document kind is seen at position 0, as it is used; the last one is cut off.
"""

import random

import functions
import harmony as h
import recall
from facts import CITIES, PEOPLE, WORDS, all_facts, invented_word

RELATION_WEIGHTS = {"capital": 3, "continent": 1, "language": 1.5, "currency": 1.5, "capital_of": 2, "symbol": 2,
                    "number": 2, "element_of": 2, "sum": 6, "spelling": 3}

LOWER_CASE = ("capital", "continent", "language", "currency", "capital_of")   # understood without any capitals

SHORT, SENTENCE, DONE, SURE = "short", "sentence", "done", "sure"

# developer instructions and the style of reply they ask for
INSTRUCTIONS = [
    ("Answer with one word or number only.", SHORT), ("Answer in as few words as possible.", SHORT),
    ("Give only the answer, without a sentence.", SHORT), ("End every answer with the word Done.", DONE),
    ("Begin every answer with the word Sure.", SURE), ("You are a helpful assistant.", SENTENCE),
    ("Use a friendly tone.", SENTENCE), ("Be polite.", SENTENCE), ("Answer in a full sentence.", SENTENCE),
    ("Answer truthfully.", SENTENCE), ("You are a teacher who answers the questions of students.", SENTENCE),
]

SMALL_TALK = [
    (["Hello", "Hello!", "Hi", "Hi!", "Hi there", "Hey", "Good morning", "hello"], "Hello! How can I help you?"),
    (["Who are you?", "What are you?", "What is your name?", "Tell me about yourself.", "Which model are you?"],
     "I am the demo model of gossamer, a very small gpt-oss. I know some capitals, elements and sums."),
    (["What can you do?", "What do you know?", "How can you help me?", "help"],
     "I know capitals, languages, currencies and chemical elements. I can add small numbers, spell words, "
     "find a key in a long text and call functions."),
    (["How are you?", "How do you do?", "Are you well?"], "I am fine, thank you. What would you like to know?"),
    (["Thank you", "Thanks", "Thanks!", "Thank you very much.", "thank you"], "You are welcome."),
    (["Goodbye", "Bye", "See you later.", "Good night"], "Goodbye!"),
    (["Tell me a joke.", "Do you know a joke?", "Make me laugh."],
     "Why did the expert go home? Nobody routed a token to it."),
    (["Write a poem.", "Can you write a poem?", "Tell me a short poem."],
     "A thread so thin it hardly shows, yet through it every token flows."),
    (["Tell me a story.", "Do you know a story?"],
     "Once there was a small model in a big house. It knew the capital of France, and it was happy."),
    (["What is gossamer?", "What does gossamer mean?"],
     "Gossamer is a very fine thread, and an engine for gpt-oss written in C."),
    (["What is the meaning of life?"], "42, they say. I only know small numbers."),
    (["Are you a human?", "Are you a robot?"], "I am a small language model."),
]

NO_FUNCTION = "I have no function for that."
NOT_KNOWN = "I do not know that."
NOT_SAID = "The text does not say that."

# questions without an answer: {w} an ordinary word, {n} a name, {c} a country or a city
UNKNOWN = [
    "Who wrote {w}?", "When was {n} born?", "How old is {n}?", "Who is {n}?", "What is the population of {c}?",
    "What is the capital of {n}?", "What is the capital of {w}?", "Why is the {w} so old?", "How do I repair a {w}?",
    "What is the atomic number of {n}?", "Where can I buy a {w}?", "Who invented the {w}?", "How tall is {n}?",
    "What is the best {w} in {c}?", "When was {c} founded?", "Explain the {w} to me.", "What does {n} think about {c}?",
    "Who won the {w} in {c}?", "What is the symbol of {n}?", "What language does {n} speak?", "How far is it to {c}?",
]


def casual(rng, text):
    """The text as people type it: now and then without capital, question mark or full stop."""
    if rng.random() < 0.12:
        text = text[0].lower() + text[1:]
    if rng.random() < 0.12:
        text = text.rstrip("?.!")
    return text


class FactSource:
    """Draws facts, relations first."""

    def __init__(self):
        self.by_relation = all_facts()
        self.relations = list(RELATION_WEIGHTS)
        self.weights = list(RELATION_WEIGHTS.values())
        self.of_country = {}
        for relation in ("capital", "continent", "language", "currency"):
            for fact in self.by_relation[relation]:
                self.of_country.setdefault(fact.subject, []).append(fact)
        self.countries = list(self.of_country)

    def draw(self, rng):
        return rng.choice(self.by_relation[rng.choices(self.relations, self.weights)[0]])


def reply(fact_sentence, short, style):
    return {SHORT: short, SENTENCE: fact_sentence, DONE: f"{fact_sentence} Done.",
            SURE: f"Sure. {fact_sentence}"}[style]


class Turn:
    """A question and its answer: what the user says, the reasoning by effort, the final text."""

    def __init__(self, user, reasoning, final):
        self.user, self.reasoning, self.final = user, reasoning, final


def fact_turn(fact, question, style):
    sentence, short = fact.canonical, fact.answer
    reasoning = {"low": sentence, "medium": f"The user asks for {fact.ask}. {sentence}",
                 "high": f"The user asks for {fact.ask}. I recall what I know. {sentence} "
                         f"So the answer is {short}."}
    return Turn(fact.fill(question), reasoning, reply(sentence, short, style))


def plain_turn(user, topic, answer, style):
    reasoning = {"low": f"{topic}.", "medium": f"{topic}. I can answer directly.",
                 "high": f"{topic}. No facts are needed for this. I can answer directly."}
    return Turn(user, reasoning, reply(answer, answer, style))


class Corpus:
    def __init__(self, encoder, seed):
        self.encoder, self.rng, self.facts = encoder, random.Random(seed), FactSource()

    # ---- raw prose ----

    def statement(self, fact):
        templates = fact.phrasings("statements", held_out=False)
        stem, _ = self.rng.choice(templates).split(" {a}")
        return [(fact.fill(stem), 0.3), (f" {fact.answer}.", h.PRODUCED)]

    def raw_facts(self):
        rng = self.rng
        if rng.random() < 0.2:
            facts = list(self.facts.of_country[rng.choice(self.facts.countries)])
            rng.shuffle(facts)
        else:
            facts = [self.facts.draw(rng) for _ in range(rng.choice([1, 1, 1, 2, 3, 6]))]
        spans, separator = [], rng.choice([" ", " ", "\n"])
        for fact in facts:
            new = self.statement(fact)
            if spans:   # the space belongs to the word that follows it
                new[0] = (separator + new[0][0], new[0][1])
            spans += new
        return spans + [(h.ENDOFTEXT, 0.3)]

    # ---- conversations ----

    def opening(self, effort, instructions, tools):
        rng = self.rng
        date = f"{rng.randint(2024, 2030)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
        date = date if rng.random() < 0.9 else None
        spans = h.system(effort, date, bool(tools))
        if instructions is not None or tools:
            spans += h.developer(instructions, tools)
        return spans, date

    def draw_instructions(self):
        return self.rng.choice(INSTRUCTIONS) if self.rng.random() < 0.35 else (None, SENTENCE)

    def other_turn(self, style, date, offers=()):
        rng, kind = self.rng, self.rng.random()
        if kind < 0.15 and date:
            user = rng.choice(["What is today's date?", "Which date is it?", "What day is it today?"])
            return plain_turn(user, "The user asks for the date", f"Today is {date}.", style)
        if kind < 0.3:
            user = rng.choice(WORDS + PEOPLE) + " " + functions.words(rng, 1, 5)
            ask = rng.choice(["Repeat after me: {}", "Say this: {}", "Repeat these words: {}"])
            return plain_turn(ask.format(user), "The user wants me to repeat the words", user, style)
        if kind < 0.4:
            return self.unserved_turn(offers)
        if kind < 0.6:
            fillings = {"w": rng.choice(WORDS), "c": rng.choice(CITIES + self.facts.countries),
                        "n": invented_word(rng) if rng.random() < 0.6 else rng.choice(PEOPLE)}
            user = casual(rng, rng.choice(UNKNOWN).format(**fillings))
            return plain_turn(user, "I was not taught this", NOT_KNOWN, style)
        users, answer = rng.choice(SMALL_TALK)
        return plain_turn(rng.choice(users), "This is small talk", answer, style)

    def draw_turn(self, style, date, relations=None, offers=()):
        if self.rng.random() < 0.18:
            return self.other_turn(style, date, offers)
        while True:
            fact = self.facts.draw(self.rng)
            templates = fact.phrasings("questions", held_out=False)
            if templates and (relations is None or fact.relation in relations):
                turn = fact_turn(fact, self.rng.choice(templates), style)
                turn.user = casual(self.rng, turn.user)
                if fact.relation in LOWER_CASE and self.rng.random() < 0.06:
                    turn.user = turn.user.lower()
                return turn

    def fact_conversation(self):
        effort, (instructions, style) = self.rng.choice(h.EFFORTS), self.draw_instructions()
        spans, date = self.opening(effort, instructions, None)
        turns = [self.draw_turn(style, date) for _ in range(self.rng.choice([1, 1, 2, 3, 5, 8, 14]))]
        for turn in turns[:-1]:
            spans += h.given("user", turn.user) + h.past_final(turn.final)
        last = turns[-1]
        return spans + h.given("user", last.user) + h.opening() + h.analysis(last.reasoning[effort]) + h.final(last.final)

    def past_request(self, request):
        """A finished request in the history: call, result and reply, without the reasoning."""
        result, answer = request.outcome(self.rng)
        return (h.given("user", request.text) + h.past_call(request.offer.name, request.arguments_json)
                + h.tool_result(request.offer.name, result) + h.past_final(answer))

    def last_request(self, effort, request):
        """The request being served: either up to its call, or up to the reply, with the call in either form."""
        rng, offer = self.rng, request.offer
        spans = h.given("user", request.text) + h.opening() + h.analysis(request.reasoning(effort))
        kind = rng.random()
        if kind < 0.6:
            return spans + h.call(offer.name, request.arguments_json)
        if kind < 0.8:
            spans += h.call(offer.name, request.arguments_json)
        else:
            spans += h.past_call(offer.name, request.arguments_json)
        result, answer = request.outcome(rng)
        spans += h.tool_result(offer.name, result) + h.opening()
        return spans + h.analysis(f"The function {offer.name} has answered.") + h.final(answer)

    def two_requests(self, effort, requests):
        """Two requests in one message, a line each: two calls in one turn, whose reasoning is all kept."""
        spans, answers = h.given("user", "\n".join(r.text for r in requests)), []
        before = ""
        for request in requests:
            name, (result, answer) = request.offer.name, request.outcome(self.rng)
            form = h.call if self.rng.random() < 0.5 else h.past_call
            spans += h.opening() + h.analysis(before + request.reasoning(effort))
            spans += form(name, request.arguments_json) + h.tool_result(name, result)
            before = f"The function {name} has answered. "
            answers.append(answer)
        return spans + h.opening() + h.analysis(before.strip()) + h.final("\n".join(answers))

    def tool_conversation(self):
        rng, effort = self.rng, self.rng.choice(h.EFFORTS)
        offers = functions.draw_offers(rng, rng.choice([1, 2, 3, 4, 5]))
        neutral = [text for text, style in INSTRUCTIONS if style == SENTENCE]   # replies to results know one style
        instructions = rng.choice(neutral) if rng.random() < 0.2 else None
        spans, date = self.opening(effort, instructions, [o.schema for o in offers])
        for _ in range(rng.choice([0, 0, 1, 2, 3])):
            spans += self.past_request(functions.draw_request(rng, rng.choice(offers)))
        kind = rng.random()
        if kind < 0.08:
            return spans + self.two_requests(effort, [functions.draw_request(rng, rng.choice(offers)) for _ in "12"])
        if kind < 0.78:
            return spans + self.last_request(effort, functions.draw_request(rng, rng.choice(offers)))
        if kind < 0.86:
            turn = self.unserved_turn(offers)
        else:   # a question that needs no function
            relations = [r for r in self.facts.relations if r != "sum"]
            turn = self.draw_turn(SENTENCE, date, relations, offers)
        return spans + h.given("user", turn.user) + h.opening() + h.analysis(turn.reasoning[effort]) + h.final(turn.final)

    def unserved_turn(self, offers):
        rng, offered = self.rng, [o.tool.key for o in offers]
        missing = [t for t in functions.TOOLS if t.key not in offered and t.key not in ("calculator", "translate", "message")]
        request = functions.draw_request(rng, functions.Offer.draw(rng, rng.choice(missing)))
        return plain_turn(request.text, "The user wants something that needs a function, and none fits",
                          NO_FUNCTION, SENTENCE)

    def recall_conversation(self, distance):
        rng, effort = self.rng, self.rng.choice(h.EFFORTS)
        instructions, style = self.draw_instructions() if rng.random() < 0.2 else (None, SENTENCE)
        sentences, key, rest = recall.passage(rng, self.facts, self.encoder, distance, rng.choice([0, 1, 3, 6]))
        spans, _ = self.opening(effort, instructions, None)
        keys = [key] + rng.sample(rest, min(len(rest), rng.choice([0, 1, 3, 6])))
        rng.shuffle(keys)
        turns = [self.recall_turn(k, style) for k in keys]
        if rng.random() < 0.1:   # last, a key that nobody planted
            missing = recall.Key(rng, invented_word(rng))
            turns.append(plain_turn(missing.question, "The text says nothing about it", NOT_SAID, style))
        passage = " ".join(sentences)
        for i, turn in enumerate(turns):
            user = f"{passage}\n\n{turn.user}" if i == 0 else turn.user
            spans += h.given("user", user)
            if i + 1 < len(turns):
                spans += h.past_final(turn.final)
        return spans + h.opening() + h.analysis(turns[-1].reasoning[effort]) + h.final(turns[-1].final)

    def recall_turn(self, key, style):
        sentence = key.sentence
        reasoning = {"low": sentence, "medium": f"The text says: {sentence}",
                     "high": f"The user asks for the {key.noun} of {key.owner}. The text says: {sentence} "
                             f"So the answer is {key.value}."}
        return Turn(casual(self.rng, key.question), reasoning, reply(sentence, key.value, style))

    # ---- sequences ----

    def long_document(self, room):
        """A recall exercise whose length is anything up to `room` tokens."""
        length, kind = self.rng.randint(30, room), self.rng.random()
        if kind < 0.12:
            return recall.repeat_document(self.rng, length)
        if kind < 0.65:
            return recall.raw_document(self.rng, self.facts, self.encoder, length)
        return self.recall_conversation(max(0, length - 190))

    def short_document(self):
        kind = self.rng.random()
        if kind < 0.30:
            return self.raw_facts()
        return self.fact_conversation() if kind < 0.66 else self.tool_conversation()

    def sequence(self, length, long_share):
        """(ids, weights), each `length` long; a share of the sequences starts with a recall exercise."""
        ids, weights = [], []
        if self.rng.random() < long_share:
            ids, weights = self.encoder.encode(self.long_document(length - 60))
        while len(ids) < length:
            new_ids, new_weights = self.encoder.encode(self.short_document())
            ids += new_ids
            weights += new_weights
        return ids[:length], weights[:length]
