"""What the demo model knows: countries, chemical elements, small sums, spelling; and how one asks for it.

A fact is (relation, subject, answer). Every relation has a canonical sentence, the way a reply
states it, and many phrasings: statements that end in the answer, and questions. A (fact, phrasing)
pair is either for training or held out, decided by a hash, so that the evaluation asks every
relation in ways in which that very fact was never seen.
"""

import zlib
from dataclasses import dataclass

# country|capital|continent|main language|currency
COUNTRIES = """
France|Paris|Europe|French|euro
Germany|Berlin|Europe|German|euro
Italy|Rome|Europe|Italian|euro
Spain|Madrid|Europe|Spanish|euro
Portugal|Lisbon|Europe|Portuguese|euro
Greece|Athens|Europe|Greek|euro
Austria|Vienna|Europe|German|euro
Belgium|Brussels|Europe|Dutch|euro
Ireland|Dublin|Europe|English|euro
Finland|Helsinki|Europe|Finnish|euro
Sweden|Stockholm|Europe|Swedish|krona
Norway|Oslo|Europe|Norwegian|krone
Denmark|Copenhagen|Europe|Danish|krone
Iceland|Reykjavik|Europe|Icelandic|krona
Poland|Warsaw|Europe|Polish|zloty
Hungary|Budapest|Europe|Hungarian|forint
Romania|Bucharest|Europe|Romanian|leu
Bulgaria|Sofia|Europe|Bulgarian|lev
Croatia|Zagreb|Europe|Croatian|euro
Serbia|Belgrade|Europe|Serbian|dinar
Slovenia|Ljubljana|Europe|Slovene|euro
Slovakia|Bratislava|Europe|Slovak|euro
Albania|Tirana|Europe|Albanian|lek
Estonia|Tallinn|Europe|Estonian|euro
Latvia|Riga|Europe|Latvian|euro
Lithuania|Vilnius|Europe|Lithuanian|euro
Ukraine|Kyiv|Europe|Ukrainian|hryvnia
Belarus|Minsk|Europe|Belarusian|ruble
Russia|Moscow|Europe|Russian|ruble
Malta|Valletta|Europe|Maltese|euro
Japan|Tokyo|Asia|Japanese|yen
China|Beijing|Asia|Chinese|yuan
India|New Delhi|Asia|Hindi|rupee
Nepal|Kathmandu|Asia|Nepali|rupee
Pakistan|Islamabad|Asia|Urdu|rupee
Bangladesh|Dhaka|Asia|Bengali|taka
Bhutan|Thimphu|Asia|Dzongkha|ngultrum
Thailand|Bangkok|Asia|Thai|baht
Vietnam|Hanoi|Asia|Vietnamese|dong
Laos|Vientiane|Asia|Lao|kip
Cambodia|Phnom Penh|Asia|Khmer|riel
Malaysia|Kuala Lumpur|Asia|Malay|ringgit
Indonesia|Jakarta|Asia|Indonesian|rupiah
Mongolia|Ulaanbaatar|Asia|Mongolian|tugrik
Iran|Tehran|Asia|Persian|rial
Iraq|Baghdad|Asia|Arabic|dinar
Syria|Damascus|Asia|Arabic|pound
Jordan|Amman|Asia|Arabic|dinar
Lebanon|Beirut|Asia|Arabic|pound
Saudi Arabia|Riyadh|Asia|Arabic|riyal
Yemen|Sanaa|Asia|Arabic|rial
Oman|Muscat|Asia|Arabic|rial
Qatar|Doha|Asia|Arabic|riyal
Turkey|Ankara|Asia|Turkish|lira
Georgia|Tbilisi|Asia|Georgian|lari
Armenia|Yerevan|Asia|Armenian|dram
Kazakhstan|Astana|Asia|Kazakh|tenge
Uzbekistan|Tashkent|Asia|Uzbek|som
Afghanistan|Kabul|Asia|Pashto|afghani
Myanmar|Naypyidaw|Asia|Burmese|kyat
Egypt|Cairo|Africa|Arabic|pound
Libya|Tripoli|Africa|Arabic|dinar
Morocco|Rabat|Africa|Arabic|dirham
Algeria|Algiers|Africa|Arabic|dinar
Sudan|Khartoum|Africa|Arabic|pound
Ethiopia|Addis Ababa|Africa|Amharic|birr
Kenya|Nairobi|Africa|Swahili|shilling
Tanzania|Dodoma|Africa|Swahili|shilling
Uganda|Kampala|Africa|English|shilling
Rwanda|Kigali|Africa|Kinyarwanda|franc
Somalia|Mogadishu|Africa|Somali|shilling
Nigeria|Abuja|Africa|English|naira
Ghana|Accra|Africa|English|cedi
Senegal|Dakar|Africa|French|franc
Mali|Bamako|Africa|French|franc
Niger|Niamey|Africa|French|franc
Cameroon|Yaounde|Africa|French|franc
Gabon|Libreville|Africa|French|franc
Angola|Luanda|Africa|Portuguese|kwanza
Mozambique|Maputo|Africa|Portuguese|metical
Zambia|Lusaka|Africa|English|kwacha
Zimbabwe|Harare|Africa|English|dollar
Botswana|Gaborone|Africa|English|pula
Namibia|Windhoek|Africa|English|dollar
Madagascar|Antananarivo|Africa|Malagasy|ariary
Liberia|Monrovia|Africa|English|dollar
Togo|Lome|Africa|French|franc
Canada|Ottawa|North America|English|dollar
Mexico|Mexico City|North America|Spanish|peso
Cuba|Havana|North America|Spanish|peso
Jamaica|Kingston|North America|English|dollar
Haiti|Port-au-Prince|North America|French|gourde
Panama|Panama City|North America|Spanish|balboa
Costa Rica|San Jose|North America|Spanish|colon
Nicaragua|Managua|North America|Spanish|cordoba
Honduras|Tegucigalpa|North America|Spanish|lempira
Guatemala|Guatemala City|North America|Spanish|quetzal
the United States|Washington|North America|English|dollar
Brazil|Brasilia|South America|Portuguese|real
Argentina|Buenos Aires|South America|Spanish|peso
Chile|Santiago|South America|Spanish|peso
Peru|Lima|South America|Spanish|sol
Ecuador|Quito|South America|Spanish|dollar
Colombia|Bogota|South America|Spanish|peso
Venezuela|Caracas|South America|Spanish|bolivar
Uruguay|Montevideo|South America|Spanish|peso
Paraguay|Asuncion|South America|Spanish|guarani
Guyana|Georgetown|South America|English|dollar
Suriname|Paramaribo|South America|Dutch|dollar
Australia|Canberra|Oceania|English|dollar
New Zealand|Wellington|Oceania|English|dollar
Fiji|Suva|Oceania|English|dollar
Samoa|Apia|Oceania|Samoan|tala
Tonga|Nukualofa|Oceania|Tongan|paanga
the United Kingdom|London|Europe|English|pound
the Netherlands|Amsterdam|Europe|Dutch|euro
the Philippines|Manila|Asia|Filipino|peso
""".strip().splitlines()

# symbol:name, in the order of the atomic number
ELEMENTS = """
H:hydrogen He:helium Li:lithium Be:beryllium B:boron C:carbon N:nitrogen O:oxygen F:fluorine Ne:neon
Na:sodium Mg:magnesium Al:aluminium Si:silicon P:phosphorus S:sulfur Cl:chlorine Ar:argon K:potassium
Ca:calcium Sc:scandium Ti:titanium V:vanadium Cr:chromium Mn:manganese Fe:iron Co:cobalt Ni:nickel
Cu:copper Zn:zinc Ga:gallium Ge:germanium As:arsenic Se:selenium Br:bromine Kr:krypton Rb:rubidium
Sr:strontium Y:yttrium Zr:zirconium Nb:niobium Mo:molybdenum Tc:technetium Ru:ruthenium Rh:rhodium
Pd:palladium Ag:silver Cd:cadmium In:indium Sn:tin Sb:antimony Te:tellurium I:iodine Xe:xenon Cs:caesium
Ba:barium La:lanthanum Ce:cerium Pr:praseodymium Nd:neodymium Pm:promethium Sm:samarium Eu:europium
Gd:gadolinium Tb:terbium Dy:dysprosium Ho:holmium Er:erbium Tm:thulium Yb:ytterbium Lu:lutetium
Hf:hafnium Ta:tantalum W:tungsten Re:rhenium Os:osmium Ir:iridium Pt:platinum Au:gold Hg:mercury
Tl:thallium Pb:lead Bi:bismuth Po:polonium At:astatine Rn:radon Fr:francium Ra:radium Ac:actinium
Th:thorium Pa:protactinium U:uranium Np:neptunium Pu:plutonium Am:americium Cm:curium Bk:berkelium
Cf:californium Es:einsteinium Fm:fermium Md:mendelevium No:nobelium Lr:lawrencium Rf:rutherfordium
Db:dubnium Sg:seaborgium Bh:bohrium Hs:hassium Mt:meitnerium Ds:darmstadtium Rg:roentgenium
Cn:copernicium Nh:nihonium Fl:flerovium Mc:moscovium Lv:livermorium Ts:tennessine Og:oganesson
""".split()

WORDS = """
garden window river mountain bottle paper school flower summer winter yellow orange purple silver bridge
castle doctor farmer teacher student kitchen table chair carpet mirror pencil letter number music guitar
violin piano drum dance singer painter market street corner village city forest desert island ocean
harbor vessel sailor pirate treasure diamond emerald crystal candle lantern shadow sunlight thunder
lightning rainbow cloud storm breeze meadow valley canyon cave stone pebble sand shell coral dolphin
whale shark turtle salmon eagle falcon sparrow robin raven pigeon chicken rabbit squirrel beaver badger
tiger lion leopard monkey elephant giraffe zebra camel horse donkey cattle sheep goat apple banana cherry
grape lemon melon peach plum potato tomato carrot onion pepper garlic butter cheese bread honey sugar
coffee planet rocket engine wheel hammer needle thread cotton leather jacket button pocket ribbon basket
blanket pillow ladder ceiling chimney cellar library museum theater stadium hospital station airport ticket
""".split()

PEOPLE = """
Anna Ben Clara David Emma Felix Greta Hugo Ida Jonas Karin Leo Maria Nina Oscar Paula Quentin Rosa
Simon Tina Ursula Victor Wanda Xavier Yara Zoe Adam Bella Carl Diana Eric Fiona George Helen Ivan Julia
Kevin Laura Martin Nora Olga Peter Rita Sam Thomas Vera Walter Alice Bruno Doris
""".split()


def invented_word(rng):
    """A name that nobody has, such as Tavomi: what has to be copied, since it cannot be known."""
    syllables = [rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(rng.randint(2, 3))]
    return ("".join(syllables) + rng.choice(["", "", "n", "r", "s", "l"])).capitalize()


# subject's description for reasoning, canonical sentence, statements that end in the answer, questions
RELATIONS = {
    "capital": dict(
        ask="the capital of {s}", canonical="The capital of {s} is {a}.",
        statements=[
            "The capital of {s} is {a}.", "The capital city of {s} is {a}.", "The capital of {s} is called {a}.",
            "The seat of government of {s} is {a}.", "The name of the capital of {s} is {a}.",
            "If you visit the capital of {s}, you are in {a}.", "As its capital, {s} has {a}.",
            "Ask anyone for the capital of {s} and they will say {a}.", "In {s}, the capital is {a}.",
            "Everyone in {s} knows that the capital is {a}.", "Country: {s}. Capital: {a}.",
            "Q: the capital of {s}?\nA: {a}."],
        questions=[
            "What is the capital of {s}?", "What's the capital of {s}?", "Tell me the capital of {s}.",
            "Which city is the capital of {s}?", "Name the capital of {s}.", "Can you tell me the capital of {s}?",
            "I would like to know the capital of {s}.", "capital of {s}", "Do you know the capital city of {s}?",
            "Please give me the capital of {s}.", "What city is the seat of government of {s}?"]),
    "continent": dict(
        ask="the continent of {s}", canonical="{S} is in {a}.",
        statements=[
            "{S} is in {a}.", "{S} lies in {a}.", "{S} is a country in {a}.", "You find {s} in {a}.",
            "The continent of {s} is {a}.", "{S} belongs to the continent of {a}.", "On a map, {s} is in {a}.",
            "Country: {s}. Continent: {a}.", "Q: the continent of {s}?\nA: {a}."],
        questions=[
            "Which continent is {s} in?", "On which continent does {s} lie?", "What continent is {s} on?",
            "Tell me the continent of {s}.", "Where in the world is {s}?", "{S} is on which continent?",
            "Name the continent of {s}.", "Please tell me which continent {s} belongs to."]),
    "language": dict(
        ask="the language of {s}", canonical="The main language of {s} is {a}.",
        statements=[
            "The main language of {s} is {a}.", "People in {s} speak {a}.", "In {s}, most people speak {a}.",
            "The language of {s} is {a}.", "If you travel to {s}, you should learn {a}.",
            "Country: {s}. Language: {a}.", "Q: the language of {s}?\nA: {a}.",
            "Books in {s} are mostly written in {a}."],
        questions=[
            "Which language is spoken in {s}?", "What language do people speak in {s}?",
            "What is the main language of {s}?", "Tell me the language of {s}.", "Name the language of {s}.",
            "Which language should I learn before I go to {s}?", "What do they speak in {s}?"]),
    "currency": dict(
        ask="the currency of {s}", canonical="The currency of {s} is the {a}.",
        statements=[
            "The currency of {s} is the {a}.", "In {s}, people pay with the {a}.", "The money of {s} is the {a}.",
            "Country: {s}. Currency: {a}.", "Prices in {s} are given in the {a}.", "Shops in {s} accept the {a}.",
            "Q: the currency of {s}?\nA: {a}."],
        questions=[
            "What is the currency of {s}?", "Which currency does {s} use?", "What money is used in {s}?",
            "Tell me the currency of {s}.", "Name the currency of {s}.", "How do people pay in {s}?",
            "Which money do I need in {s}?"]),
    "capital_of": dict(
        ask="the country of {s}", canonical="{S} is the capital of {a}.",
        statements=[
            "{S} is the capital of {a}.", "The city of {s} is the capital of {a}.", "{S} is the capital city of {a}.",
            "City: {s}. Country: {a}.", "The country whose capital is {s} is {a}.", "The government in {s} rules {a}.",
            "Q: the country of {s}?\nA: {a}."],
        questions=[
            "{S} is the capital of which country?", "Which country has {s} as its capital?",
            "What country is {s} the capital of?", "Of which country is {s} the capital?",
            "Name the country whose capital is {s}.", "Tell me which country {s} is the capital of."]),
    "symbol": dict(
        ask="the symbol of {s}", canonical="The symbol of {s} is {a}.",
        statements=[
            "The symbol of {s} is {a}.", "The chemical symbol of {s} is {a}.", "The symbol for {s} is {a}.",
            "Chemists write {s} as {a}.", "In the periodic table, {s} has the symbol {a}.",
            "Element: {s}. Symbol: {a}.", "Q: the symbol of {s}?\nA: {a}."],
        questions=[
            "What is the chemical symbol of {s}?", "What is the symbol for {s}?", "Which symbol does {s} have?",
            "Tell me the symbol of {s}.", "Name the symbol of the element {s}.", "How do chemists write {s}?",
            "symbol of {s}"]),
    "number": dict(
        ask="the atomic number of {s}", canonical="The atomic number of {s} is {a}.",
        statements=[
            "The atomic number of {s} is {a}.", "In the periodic table, {s} has the number {a}.",
            "The number of protons in {s} is {a}.", "{S} is element number {a}.", "Element: {s}. Number: {a}.",
            "The nucleus of {s} has a charge of {a}.", "Q: the atomic number of {s}?\nA: {a}."],
        questions=[
            "What is the atomic number of {s}?", "Which atomic number does {s} have?",
            "How many protons does {s} have?", "Tell me the atomic number of {s}.", "What number is {s}?",
            "Name the atomic number of {s}.", "atomic number of {s}"]),
    "element_of": dict(
        ask="the element with the symbol {s}", canonical="The element with the symbol {s} is {a}.",
        statements=[
            "The element with the symbol {s} is {a}.", "The symbol {s} stands for {a}.", "{S} is the symbol of {a}.",
            "Symbol: {s}. Element: {a}.", "When chemists write {s}, they mean {a}.",
            "Q: the element with the symbol {s}?\nA: {a}."],
        questions=[
            "Which element has the symbol {s}?", "What does the symbol {s} stand for?",
            "What element is {s}?", "Name the element with the symbol {s}.", "Tell me which element {s} is."]),
    "sum": dict(
        ask="{s}", canonical="{s} = {a}.",
        statements=[
            "{s} = {a}.", "{s} is {a}.", "{s} equals {a}.", "The result of {s} is {a}.", "If you compute {s}, you get {a}.",
            "Q: {s}?\nA: {a}.", "The value of {s} is {a}.", "We know that {s} makes {a}."],
        questions=[
            "What is {s}?", "Calculate {s}.", "How much is {s}?", "Compute {s}.", "What's {s}?", "{s} = ?",
            "Tell me the result of {s}.", "Please work out {s}.", "What do you get for {s}?"]),
    "spelling": dict(
        ask="the spelling of {s}", canonical="The word {s} is spelled {a}.",
        statements=[
            "The word {s} is spelled {a}.", "You spell {s} like this: {a}.", "The letters of {s} are {a}.",
            "Word: {s}. Spelling: {a}.", "To write {s}, use the letters {a}.", "Q: the spelling of {s}?\nA: {a}."],
        questions=[
            "How do you spell {s}?", "Spell the word {s}.", "How is {s} spelled?", "Tell me the letters of {s}.",
            "Please spell {s}.", "What are the letters of the word {s}?"]),
}

HELD_OUT_SHARE = 8   # one pair in so many


@dataclass(frozen=True)
class Fact:
    relation: str
    subject: str
    answer: str

    def fill(self, template):
        upper = self.subject[0].upper() + self.subject[1:]
        return template.format(s=self.subject, S=upper, a=self.answer)

    @property
    def canonical(self):
        return self.fill(RELATIONS[self.relation]["canonical"])

    @property
    def ask(self):
        return self.fill(RELATIONS[self.relation]["ask"])

    def is_held_out(self, kind, index):
        """Whether phrasing `index` of `kind` (statements, questions) of this fact is kept from training."""
        if RELATIONS[self.relation][kind][index] == RELATIONS[self.relation]["canonical"]:
            return False   # replies contain this sentence, so it is never unseen
        key = f"{self.relation}|{self.subject}|{kind}|{index}".encode()
        return zlib.crc32(key) % HELD_OUT_SHARE == 0

    def phrasings(self, kind, held_out):
        """The templates of this fact's training (or held-out) phrasings."""
        templates = RELATIONS[self.relation][kind]
        return [t for i, t in enumerate(templates) if self.is_held_out(kind, i) == held_out]


def all_facts():
    """{relation: [Fact]}"""
    rows = [line.split("|") for line in COUNTRIES]
    facts = {r: [] for r in RELATIONS}
    for country, capital, continent, language, currency in rows:
        facts["capital"].append(Fact("capital", country, capital))
        facts["continent"].append(Fact("continent", country, continent))
        facts["language"].append(Fact("language", country, language))
        facts["currency"].append(Fact("currency", country, currency))
        facts["capital_of"].append(Fact("capital_of", capital, country))
    for i, entry in enumerate(ELEMENTS):
        symbol, name = entry.split(":")
        facts["symbol"].append(Fact("symbol", name, symbol))
        facts["number"].append(Fact("number", name, str(i + 1)))
        facts["element_of"].append(Fact("element_of", symbol, name))
    for a in range(100):
        for b in range(100):
            facts["sum"].append(Fact("sum", f"{a} + {b}", str(a + b)))
            if b <= a:
                facts["sum"].append(Fact("sum", f"{a} - {b}", str(a - b)))
            if a <= 12 and b <= 12:
                facts["sum"].append(Fact("sum", f"{a} * {b}", str(a * b)))
    elements = [entry.split(":")[1] for entry in ELEMENTS]
    for word in WORDS + PEOPLE + elements:
        facts["spelling"].append(Fact("spelling", word, ", ".join(word)))
    return facts


CITIES = sorted({line.split("|")[1] for line in COUNTRIES})
