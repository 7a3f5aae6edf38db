"""Needle wordings: the words in which needles, questions and filler of the needle task are told."""

from dataclasses import dataclass
from typing import NamedTuple

from lpes_evo.problems._draws import Draws

FILLER = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."

_WORDS = """
    anchor apple arrow autumn basket beach bell bird blanket boat book bottle branch bread bridge
    brush bucket button cabin camera candle canyon carpet castle chain chair cheese circle cliff
    clock cloud coat coffee copper corner cotton cradle crown curtain desert diamond door dragon
    drum eagle engine feather fence field flame flower forest fountain garden glass glove guitar
    hammer harbor hat honey horse island jacket jungle kettle kitchen ladder lake lamp lantern leaf
    lemon letter lion marble market meadow melon mirror moon mountain needle ocean olive orange oven
    paper pencil pepper piano pillow planet pocket pond rabbit ribbon river road rocket roof rope
    saddle sail salt shadow shell ship silver snow spoon spring star stone storm street sugar summer
    table tiger tower train tree tunnel valley velvet violin wagon wall watch water wheel window
    winter wood
"""
KEYS = tuple(_WORDS.split())

_DEPARTMENTS = """
    accounting archives audit bakery billing botany brewing butchery carpentry catering ceramics chemistry cleaning
    clothing compliance computing cooking costumes cutlery dairy delivery dentistry design dispatch drafting drawing
    drilling editing education electronics engraving ethics events exports farming fashion finance fishing forestry
    foundry framing freight furniture gardening geology glazing hardware health heating history housing imports
    insurance joinery justice knitting laundry law lending lighting logistics mail maintenance marketing masonry
    mechanics medicine milling mining music nursing optics packing painting parking payroll pharmacy photography
    physics planning plumbing police pottery printing procurement propulsion publishing purchasing quality radiology
    recruiting recycling refunds repairs research retail returns robotics safety sales sanitation savings sculpture
    security sewing shipping signals soldering sourcing staffing statistics storage strategy surgery surveying
    tailoring taxation telephony testing textiles theatre ticketing timber tourism toys trading training transport
    travel treasury upholstery valuation ventilation warehousing waste weaving welding zoology
"""

_NAMES = """
    Abigail Adam Adrian Agnes Albert Alice Amelia Amos Anton Arthur Astrid August Barbara Beatrice Benjamin Bernard
    Bianca Boris Bridget Bruno Camille Carl Cecilia Clara Claude Conrad Daisy Damian Daniel Daphne David Diana
    Doris Dorothy Edgar Edith Edmund Eleanor Elias Elsa Emil Erica Ernest Esther Eugene Felix Fiona Francis
    Frederick Gabriel George Gilbert Gloria Gregory Greta Gustav Hannah Harold Harriet Hector Helen Henry Hugo Ida Igor
    Ingrid Irene Isaac Isabel Ivan Jacob Jasmine Jerome Joan Jonas Josephine Judith Julian Karen Kenneth Klara Laura
    Leo Leonard Lillian Louis Lucas Lydia Magnus Marcus Margaret Martha Martin Matilda Maurice Max Mildred Miriam Nadia
    Nathan Nicholas Nora Norman Olga Oliver Oscar Otto Patricia Paul Penelope Philip Phoebe Quentin Rachel Ralph Rebecca
    Robert Rosa Rupert Ruth Samuel Sandra Sarah Silvia Simon Sophia Stella Stephen Susan Theodore Theresa Thomas Tobias
    Ursula Valerie Vera Victor Viola Walter Wendy William Winifred Xavier Yvonne Zachary Zoe
"""

LANDMARKS = {
    "the Acropolis": "Athens",
    "the Alhambra": "Granada",
    "Angkor Wat": "Cambodia",
    "the Atomium": "Brussels",
    "Big Ben": "London",
    "the Blue Mosque": "Istanbul",
    "the Brandenburg Gate": "Berlin",
    "the Burj Khalifa": "Dubai",
    "the Charles Bridge": "Prague",
    "Christ the Redeemer": "Rio",
    "the CN Tower": "Toronto",
    "the Colosseum": "Rome",
    "the Eiffel Tower": "Paris",
    "the Fisherman's Bastion": "Budapest",
    "the Forbidden City": "Beijing",
    "the Gateway Arch": "Missouri",
    "the Golden Gate Bridge": "California",
    "the Great Pyramid": "Egypt",
    "the Hermitage": "Petersburg",
    "the Kaaba": "Mecca",
    "the Kremlin": "Moscow",
    "the Little Mermaid": "Copenhagen",
    "Machu Picchu": "Peru",
    "the Marienplatz": "Munich",
    "Marina Bay Sands": "Singapore",
    "the Petronas Towers": "Malaysia",
    "the Rialto Bridge": "Venice",
    "the Rijksmuseum": "Amsterdam",
    "the Sagrada Familia": "Barcelona",
    "the Schoenbrunn Palace": "Vienna",
    "the Semperoper": "Dresden",
    "the Shibuya Crossing": "Tokyo",
    "the Space Needle": "Seattle",
    "the Statue of Liberty": "Manhattan",
    "the Taj Mahal": "India",
    "the Uffizi": "Florence",
    "the Vasa Museum": "Stockholm",
}
"""Places by what stands there; no name of a sight holds the name of its place."""


class Needle(NamedTuple):
    """A fact that is hidden in a text, and the question about it.

    Attributes:
        fact: The sentence in the text.
        question: The question.
        prefix: The words that the answer begins with.
        answer: The value that is asked for.
    """

    fact: str
    question: str
    prefix: str
    answer: str


@dataclass(frozen=True)
class Wording:
    """Words in which keys are given numbers.

    Attributes:
        name: The name in the sources of examples; empty for the first wording.
        keys: What numbers can be given to.
        fact: The sentence that gives a number ``{value}`` to a key ``{key}``.
        question: The question about a key.
        prefix: The words that the answer begins with.
        filler: The text between the needles.
        opening: The beginning of the prompt.
    """

    name: str
    keys: tuple[str, ...]
    fact: str
    question: str
    prefix: str
    filler: str = FILLER
    opening: str = ""

    def needles(self, draws: Draws, n_keys: int, n_digits: int) -> list[Needle]:
        """Draw the needles of a text.

        Args:
            draws: The source of chance.
            n_keys: Number of needles.
            n_digits: Digits of a number.
        """
        keys = draws.sample(self.keys, n_keys)
        least = 10 ** (n_digits - 1)
        numbers = [str(least + draws.below(9 * least)) for _ in keys]
        return [
            Needle(
                self.fact.format(key=key, value=number),
                self.question.format(key=key),
                self.prefix.format(key=key),
                number,
            )
            for key, number in zip(keys, numbers, strict=True)
        ]


WORDINGS = (
    Wording(
        "",
        KEYS,
        "The magic number for {key} is {value}.",
        "What is the magic number for {key}?",
        "The magic number for {key} is",
    ),
    Wording(
        "2",
        tuple(_DEPARTMENTS.split()),
        "Staff in {key} must enter the access code {value}.",
        "Which access code do staff in {key} enter?",
        "Staff in {key} enter the access code",
        "The lift was cleaned on Monday. Coffee is served at ten. Please close the windows at night. The meeting "
        "room has new chairs.",
        "This is a notice for everybody who works in the building.\n\n",
    ),
    Wording(
        "3",
        tuple(_NAMES.split()),
        "Hello, this is {key}, and I have moved to locker {value}.",
        "To which locker has {key} moved?",
        "{key} has moved to locker",
        "See you at lunch. Did anybody find a black umbrella? Thanks, all is well. Training starts half an hour "
        "later.",
        "These are messages of the members of a sports club.\n\n",
    ),
    Wording(
        "4",
        KEYS,
        "Remember that somebody paid {value} coins to buy one {key}.",
        "How many coins did the {key} cost?",
        "The price of the {key} in coins was",
        opening="Read the text below with care. A question about it follows.\n\n",
    ),
)
"""The wordings of numbers. The first is that of the task without options."""


@dataclass(frozen=True)
class _Association(Wording):
    """Words in which a person lives beside a sight, and the question names the place where the sight stands."""

    def needles(self, draws: Draws, n_keys: int, n_digits: int) -> list[Needle]:  # noqa: ARG002
        """Draw the needles of a text, see `Wording.needles`; numbers do not occur."""
        sights = draws.sample(self.keys, n_keys)
        names = draws.sample(tuple(_NAMES.split()), n_keys)
        return [
            Needle(
                self.fact.format(key=sight, value=name),
                self.question.format(key=LANDMARKS[sight]),
                self.prefix.format(key=LANDMARKS[sight]),
                name,
            )
            for sight, name in zip(sights, names, strict=True)
        ]


NOLIMA = _Association(
    "nolima",
    tuple(LANDMARKS),
    "{value} lives next to {key}.",
    "Which character has been in {key}?",
    "The character who has been in {key} is called",
)
"""Facts and questions that share no word, after NoLiMa (https://arxiv.org/abs/2502.05167)."""
