"""Function calls: tools whose names and parameters vary, requests for them, results and replies.

The names of a tool and of its parameters are drawn anew for every conversation, so the only way to
call it is to read the schema in the developer message. Arguments are copied from the request.
"""

import json
import zlib
from dataclasses import dataclass

from facts import CITIES, HELD_OUT_SHARE, PEOPLE, WORDS, invented_word

MORE_CITIES = """Kyoto Osaka Munich Hamburg Cologne Milan Venice Naples Barcelona Seville Lyon Nice Geneva Zurich
Boston Chicago Seattle Denver Miami Dallas Toronto Montreal Vancouver Sydney Melbourne Mumbai Shanghai
Oxford Leeds Glasgow Bergen Porto Krakow Gdansk Antwerp Salzburg Graz Turin Bologna Valencia""".split()

LANGUAGES = "French German Italian Spanish Portuguese Greek Dutch Polish Japanese Hindi Arabic Swedish".split()
CODES = "EUR USD GBP JPY CHF SEK NOK CAD AUD INR".split()
SKIES = "sunny cloudy rainy windy foggy stormy clear".split()


def words(rng, low, high):
    return " ".join(rng.choice(WORDS) if rng.random() < 0.8 else invented_word(rng)
                    for _ in range(rng.randint(low, high)))


def name_among(names):
    """Draws one of the names, or now and then one that does not exist."""
    return lambda rng: rng.choice(names) if rng.random() < 0.8 else invented_word(rng)


SLOTS = {
    "city": name_among(CITIES + MORE_CITIES),
    "unit": lambda rng: rng.choice(["celsius", "fahrenheit"]),
    "expression": lambda rng: f"{rng.randint(2, 999)} {rng.choice('+-*/')} {rng.randint(2, 999)}",
    "minutes": lambda rng: rng.randint(1, 90),
    "amount": lambda rng: rng.randint(1, 999),
    "code": lambda rng: rng.choice(CODES),
    "code2": lambda rng: rng.choice(CODES),
    "person": name_among(PEOPLE),
    "text": lambda rng: words(rng, 2, 4),
    "topic": lambda rng: words(rng, 1, 3),
    "language": lambda rng: rng.choice(LANGUAGES),
    "ticker": lambda rng: "".join(rng.choice("ABCDEFGHIKLMNOPRSTUVW") for _ in range(rng.randint(3, 4))),
    "percent": lambda rng: rng.randint(0, 100),
    "switch": lambda rng: rng.choice(["on", "off"]),
    "room": lambda rng: rng.choice(["kitchen", "cellar", "library", "garden", "hall", "office", "bedroom"]),
}


@dataclass(frozen=True)
class Tool:
    key: str
    names: list          # spellings of the function's name
    description: str
    parameters: list     # (slot, spellings of the name, schema, required)
    requests: list       # phrasings; an optional slot is passed exactly when the phrasing names it
    task: str            # the request, for the reasoning; required slots only
    result: callable     # rng -> dict
    reply: str           # the answer, from the slots and the result


STRING, NUMBER = {"type": "string"}, {"type": "number"}


def described(schema, text):
    return {**schema, "description": text}


TOOLS = [
    Tool("weather", ["get_weather", "get_current_weather", "weather", "fetch_weather"],
         "Gets the current weather in a location.",
         [("city", ["location", "city", "place"], described(STRING, "The name of the city"), True),
          ("unit", ["format", "unit", "units"],
           {"type": "string", "enum": ["celsius", "fahrenheit"], "default": "celsius"}, False)],
         ["What is the weather in {city}?", "What's the weather like in {city}?", "How is the weather in {city}?",
          "Is it raining in {city}?", "Weather in {city}, please.", "Tell me the weather in {city} in {unit}.",
          "What is the temperature in {city} in {unit}?", "How warm is it in {city}?",
          "Please look up the weather in {city}."],
         "the weather in {city}", lambda rng: {"temperature": rng.randint(1, 39), "sky": rng.choice(SKIES)},
         "It is {sky} in {city}, with {temperature} degrees."),
    Tool("calculator", ["calculator", "calculate", "evaluate", "compute"],
         "Evaluates an arithmetic expression.",
         [("expression", ["expression", "input", "formula"], described(STRING, "The expression to evaluate"), True)],
         ["What is {expression}?", "Calculate {expression}.", "Use the calculator: {expression}",
          "How much is {expression}?", "Please compute {expression}.", "Work out {expression} for me."],
         "the value of {expression}", lambda rng: {"result": rng.randint(2, 9999)}, "{expression} = {result}"),
    Tool("time", ["get_time", "current_time", "clock"], "Tells the local time of a city.",
         [("city", ["city", "location", "zone"], described(STRING, "The city"), True)],
         ["What time is it in {city}?", "Tell me the time in {city}.", "What is the local time in {city}?",
          "How late is it in {city}?", "Time in {city}, please."],
         "the time in {city}", lambda rng: {"time": f"{rng.randint(10, 23)}:{rng.randint(10, 59)}"},
         "It is {time} in {city}."),
    Tool("timer", ["set_timer", "start_timer", "timer"], "Starts a timer.",
         [("minutes", ["minutes", "duration"], described(NUMBER, "Minutes until the timer rings"), True)],
         ["Set a timer for {minutes} minutes.", "Start a timer of {minutes} minutes.", "Wake me in {minutes} minutes.",
          "Remind me in {minutes} minutes.", "I need a {minutes} minute timer."],
         "a timer of {minutes} minutes", lambda rng: {"ok": True}, "The timer rings in {minutes} minutes."),
    Tool("convert", ["convert_currency", "exchange", "convert"], "Converts an amount of money.",
         [("amount", ["amount", "value"], NUMBER, True),
          ("code", ["from", "source"], described(STRING, "Code of the currency to convert from"), True),
          ("code2", ["to", "target"], described(STRING, "Code of the currency to convert to"), True)],
         ["Convert {amount} {code} to {code2}.", "How much is {amount} {code} in {code2}?",
          "Exchange {amount} {code} for {code2}.", "What are {amount} {code} worth in {code2}?"],
         "{amount} {code} in {code2}", lambda rng: {"result": rng.randint(2, 999)},
         "{amount} {code} are {result} {code2}."),
    Tool("message", ["send_message", "send_mail", "write_message"], "Sends a message to a person.",
         [("person", ["recipient", "name", "person"], described(STRING, "Who gets the message"), True),
          ("text", ["text", "body", "message"], described(STRING, "What the message says"), True)],
         ["Send {person} the message: {text}", "Write to {person}: {text}", "Tell {person} this: {text}",
          "Message {person}: {text}"],
         "a message to {person}", lambda rng: {"sent": True}, "I sent your message to {person}."),
    Tool("translate", ["translate", "translate_text", "translator"], "Translates a text.",
         [("text", ["text", "input"], described(STRING, "The text to translate"), True),
          ("language", ["language", "target"], described(STRING, "The language to translate into"), True)],
         ["Translate into {language}: {text}", "How do you say this in {language}: {text}",
          "Give me this in {language}: {text}"],
         "a translation into {language}", lambda rng: {"translation": words(rng, 2, 3)},
         "In {language} this is: {translation}"),
    Tool("search", ["search", "web_search", "find_pages", "search_web"], "Searches the web.",
         [("topic", ["query", "terms", "q"], described(STRING, "What to search for"), True)],
         ["Search the web for {topic}", "Find pages about {topic}", "Look up {topic} on the web", "Search for {topic}"],
         "a search for {topic}", lambda rng: {"pages": rng.randint(2, 99)}, "I found {pages} pages about {topic}."),
    Tool("stock", ["get_stock_price", "stock_price", "quote"], "Gets the price of a share.",
         [("ticker", ["symbol", "ticker"], described(STRING, "The ticker symbol"), True)],
         ["What is the price of {ticker}?", "How is the share {ticker} doing?", "Get the stock price of {ticker}.",
          "What does a share of {ticker} cost?"],
         "the share price of {ticker}", lambda rng: {"price": rng.randint(2, 999)},
         "A share of {ticker} costs {price}."),
    Tool("light", ["set_light", "switch_light", "lamp"], "Controls the lights of a room.",
         [("room", ["room", "area"], described(STRING, "The room"), True),
          ("switch", ["state", "mode"], {"type": "string", "enum": ["on", "off"]}, True),
          ("percent", ["brightness", "level"], described(NUMBER, "Brightness in percent"), False)],
         ["Turn {switch} the light in the {room}.", "Switch {switch} the lights in the {room}.",
          "Please turn the {room} light {switch}.", "Turn {switch} the light in the {room} at {percent} percent."],
         "the light in the {room}", lambda rng: {"ok": True}, "The light in the {room} is {switch}."),
    Tool("location", ["get_location", "where_am_i", "locate_user"], "Gets the location of the user.", [],
         ["Where am I?", "What is my location?", "In which city am I?", "Find out where I am."],
         "the location of the user", lambda rng: {"city": rng.choice(CITIES)}, "You are in {city}."),
    Tool("note", ["create_note", "add_note", "save_note"], "Saves a note.",
         [("text", ["text", "content", "note"], described(STRING, "The text of the note"), True)],
         ["Save a note: {text}", "Make a note: {text}", "Write this down: {text}", "Remember this note: {text}"],
         "a note", lambda rng: {"saved": True}, "I saved the note."),
]


VERBS = "get find show check open close update delete count start stop fetch read load print clean".split()
OBJECTS = {   # slot: (what it is, spellings of the parameter)
    "person": ("person", ["person", "name", "owner", "user"]), "city": ("city", ["city", "place", "town"]),
    "minutes": ("number", ["number", "id", "index"]), "topic": ("thing", ["thing", "item", "title", "object"]),
}


def invented_tool(rng):
    """A tool that exists in one conversation only, such as openGarden(owner)."""
    verb, noun, slot = rng.choice(VERBS), rng.choice(WORDS), rng.choice(list(OBJECTS))
    what, spellings = OBJECTS[slot]
    schema = NUMBER if slot == "minutes" else STRING
    names = [f"{verb}_{noun}", f"{verb}_{noun}", f"{noun}_{verb}", verb + noun.capitalize()]
    aim = f"{verb} the {noun} of {{{slot}}}"
    return Tool(f"invented {verb} {noun}", names, f"Can {verb} the {noun} of a {what}.",
                [(slot, spellings, described(schema, f"The {what}"), True)],
                [aim[0].upper() + aim[1:], f"Please {aim}.", f"I want you to {aim}.", f"Can you {aim}?"],
                f"to {aim}", lambda rng: {"result": words(rng, 1, 2)}, "The answer is: {result}")


@dataclass(frozen=True)
class Offer:
    """A tool as one conversation offers it: the drawn names, and the schema."""
    tool: Tool
    name: str
    parameter_names: dict
    schema: dict

    @staticmethod
    def draw(rng, tool):
        names = {slot: rng.choice(spellings) for slot, spellings, _, _ in tool.parameters}
        plain = rng.random() < 0.3
        properties = {}
        for slot, _, schema, _ in tool.parameters:
            properties[names[slot]] = {k: v for k, v in schema.items() if not (plain and k == "description")}
        parameters = None
        if tool.parameters:
            required = [names[slot] for slot, _, _, needed in tool.parameters if needed]
            parameters = {"type": "object", "properties": properties, "required": required}
        name = rng.choice(tool.names)
        schema = {"name": name, "description": tool.description, "parameters": parameters}
        return Offer(tool, name, names, schema)


def draw_offers(rng, count):
    """Distinct tools whose drawn names are distinct, too."""
    while True:
        tools = [invented_tool(rng) if rng.random() < 0.35 else tool for tool in rng.sample(TOOLS, count)]
        offers = [Offer.draw(rng, tool) for tool in tools]
        if len({o.name for o in offers}) == count:
            return offers


@dataclass(frozen=True)
class Request:
    offer: Offer
    text: str
    slots: dict
    arguments: dict

    @property
    def arguments_json(self):
        return json.dumps(self.arguments, ensure_ascii=False)

    def reasoning(self, effort):
        name, task = self.offer.name, self.offer.tool.task.format(**self.slots)
        if effort == "low":
            return f"Use {name}."
        text = f"The user wants {task}. I call {name}."
        if effort == "high":
            given = ", ".join(f"{k} is {v}" for k, v in self.arguments.items()) or "none"
            text = f"The user wants {task}. The function {name} can do this. Its arguments: {given}. I call {name}."
        return text

    def outcome(self, rng):
        """(result as JSON text, reply)"""
        result = self.offer.tool.result(rng)
        return json.dumps(result), self.offer.tool.reply.format(**{**self.slots, **result})


def request_is_held_out(tool, index, slots):
    """One (phrasing, slot values) pair in HELD_OUT_SHARE is kept from training."""
    key = f"{tool.key}|{index}|{sorted(slots.items())}".encode()
    return bool(tool.parameters) and zlib.crc32(key) % HELD_OUT_SHARE == 0


def draw_request(rng, offer, held_out=False):
    """A request for the tool, from the training or the held-out phrasings. Tools without parameters have
    no held-out ones: there is nothing to vary."""
    tool = offer.tool
    while True:
        index = rng.randrange(len(tool.requests))
        template = tool.requests[index]
        slots = {slot: SLOTS[slot](rng) for slot, _, _, _ in tool.parameters if "{" + slot + "}" in template}
        if request_is_held_out(tool, index, slots) == held_out or not tool.parameters:
            break
    arguments = {offer.parameter_names[slot]: slots[slot] for slot, _, _, _ in tool.parameters if slot in slots}
    return Request(offer, template.format(**slots), slots, arguments)
