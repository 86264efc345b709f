"""Prompts of our own, for which a target writes the answers that its draft learns from.

Subjects and forms are put together, so a few lists make several thousand prompts. What is measured later, the prompts in
``assets/prompts``, never is among them: whatever comes near one of those is left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from specviz.analysis.prompts import load_prompts

KINDS = ("open", "code", "prefix", "summary")

_THINGS = """a rainbow|a candle|a compass|the heart|a bicycle chain|a violin|soap|a thermometer|an escalator|a refrigerator
a steam engine|photosynthesis|a desert|a coral reef|an earthquake|a magnet|a mirror|a battery|an orchestra|a beehive
a wind turbine|a solar panel|a submarine|a parachute|the immune system|a spider's web|cheese|glass|concrete|chocolate
honey|silk|a telescope|a microscope|a piano|a guitar|a camera|the internet|a search engine|a spreadsheet|a lift|a dam
a canal|a windmill|a greenhouse|a compost heap|a vaccine|a bank account|inflation|an election|a court|a library card
a passport|a recipe|a map|a calendar|a sundial|a kite|a hot-air balloon|a drum|a loom|a potter's wheel|a fountain pen
a zip|a smoke detector|a traffic light|a roundabout|a tram|an ambulance|a fire engine|a hammock|a tent|an umbrella stand
a snowflake|a thunderstorm|a tornado|a waterfall|a river delta|a cave|a mountain pass|an island|a forest floor|a swamp
the moon's phases|a solar eclipse|a comet|a black hole|gravity|friction|sound|light|heat|electricity|oxygen|salt|sugar
yeast|vinegar|coffee|olive oil|rice|wheat|potatoes|apples|bananas|tomatoes|onions|garlic|bees|whales|owls|foxes|wolves
elephants|penguins|ants|butterflies|sharks|dolphins|cats|dogs|horses|chickens|squirrels|hedgehogs|salmon|octopuses"""
_MATTERS = """learning a language|saving money|moving to a new city|working from home|keeping a diary|growing vegetables
reading more books|sleeping well|eating breakfast|walking every day|adopting a dog|running a marathon|baking bread
writing a novel|learning to draw|playing chess|playing the piano|studying for an exam|preparing an interview|public speaking
making friends|raising children|caring for old parents|volunteering|recycling|saving water|saving energy|using public transport
travelling alone|camping|hiking in the mountains|sailing|cycling to work|cooking for one|hosting a party|giving a present
apologising|saying no|keeping promises|being patient|managing time|leading a team|starting a business|selling online
writing an email|taking notes|remembering names|learning mathematics|learning history|visiting a museum|listening to music
dancing|gardening|photography|fishing|knitting|pottery|woodwork|repairing clothes|cleaning the house|sorting papers
buying a house|renting a flat|choosing a school|choosing a job|changing a job|retiring|staying healthy|losing weight
drinking enough water|reducing stress|meditating|watching birds|looking at the stars|keeping a fish tank|keeping chickens"""
_HEROES = """a shy dragon|an old fisherman|a girl who talks to trees|a robot who wants to paint|two brothers|a lost dog
a baker|a retired pirate|a young inventor|a lonely king|a postman|a cat on a ship|a teacher|an astronaut|a tailor|a ghost
a night watchman|a gardener|a farmer and his donkey|a librarian|a boy with a kite|a clever fox|a mouse|a blind musician
a queen without a crown|a doctor|a stranger on a train|a snowman|a family of bears|a watchmaker|a painter|a talking parrot"""
_PLACES = """in a forest|by the sea|in a big city|on a distant planet|in a desert town|on a mountain|in an old castle
during a storm|in a small village|on an island|in winter|under the sea|at a railway station|in a bakery|on a farm|in a market"""
_OPEN_THINGS = (
    "Explain how {} works.", "What is {}?", "Describe {} in detail.", "Tell me about {}.", "Why is {} important?",
    "Explain {} to a child.", "Give me five facts about {}.", "Write a short poem about {}.", "What is the history of {}?",
    "How would you describe {} to somebody who has never seen it?", "Write a paragraph about {}.",
    "List the most interesting things about {}.", "What can we learn from {}?", "What are common mistakes about {}?",
    "Write a short article about {} for a school newspaper.", "How is {} made, or how does it come about?",
)  # fmt: skip
_OPEN_MATTERS = (
    "Give me some tips for {}.", "What are the advantages and disadvantages of {}?", "Why is {} worth the effort?",
    "Write a letter to a friend about {}.", "Make a list of ten ideas for {}.", "How do I begin with {}?",
    "What do people often get wrong about {}?", "Write a short essay on {}.", "Write a plan for one week of {}.",
    "Give advice to somebody who finds {} difficult.", "What would you tell a beginner about {}?",
    "Write a dialogue between two friends about {}.", "What questions should I ask before {}?",
    "Explain step by step how to get better at {}.", "Is {} a good idea for everybody?",
)  # fmt: skip
_OPEN_STORIES = (
    "Write a story about {} {}.", "Tell a short story about {} {}.", "Write the beginning of a novel about {} {}.",
    "Write a fairy tale about {} {}.", "Describe a day in the life of {} {}.", "Write a letter from {} {}.",
    "Write a conversation with {} {}.",
)  # fmt: skip
_CODE = """adds two numbers|returns the largest number in a list|returns the smallest of three numbers|reverses a string
reverses a list|counts the vowels in a string|counts the lines of a file|returns the sum of the even numbers in a list
removes duplicates from a list|sorts a list of words by length|returns the factorial of a number|computes a power
checks whether a number is prime|checks whether a year is a leap year|checks whether a list is sorted|checks whether two strings are anagrams
converts kilometres to miles|converts seconds to hours, minutes and seconds|converts a number to binary|converts a string to title case
converts a decimal number to a Roman numeral|returns the greatest common divisor of two numbers|returns the least common multiple of two numbers
returns the digits of a number as a list|returns the median of a list|returns the mode of a list|returns the variance of a list of numbers
multiplies two matrices|transposes a matrix|rotates a list by k places|splits a list into chunks|finds the missing number in a list
finds the second largest number|finds the index of an item in a list|finds common items of two lists|finds the longest word in a sentence
merges two dictionaries|inverts a dictionary|sorts a dictionary by value|groups words by their first letter|counts the items of a list
reads a text file and prints every line|writes a list to a file, one item a line|reads a JSON file|appends a line to a log file
generates a random password|rolls two dice|shuffles a list|simulates tossing a coin|prints a multiplication table|prints a triangle of stars
computes the area of a circle|computes the distance between two points|solves a quadratic equation|computes compound interest
validates an email address|replaces spaces with underscores|removes punctuation from a text|truncates a text to n characters
caesar-encrypts a message|encodes a string with run-length encoding|checks whether brackets are balanced|evaluates a simple expression
implements bubble sort|implements insertion sort|implements quicksort|implements merge sort|implements linear search|implements a queue
downloads a web page|parses a date|returns the day of the week for a date|computes a person's age|measures the length of a list without len
returns the n-th triangular number|returns all divisors of a number|returns all subsets of a set|returns all permutations of a list|zips two lists into a dictionary"""
_ASK_CODE = (
    "Write a Python function that {}.", "How do I write a Python function that {}?", "Write a short Python program that {}.",
    "Write a Python function that {}, with a docstring and an example.", "Write and explain a Python function that {}.",
)  # fmt: skip
_NAMES = """total(values)|mean(values)|clamp(value, low, high)|area(width, height)|repeat(text, times)|first_word(text)|last_item(items)
is_odd(number)|is_empty(items)|square(number)|cube(number)|absolute(number)|greet(name)|full_name(first, last)|initials(name)
count_words(text)|remove_spaces(text)|join_lines(lines)|to_upper(text)|starts_with(text, prefix)|find_max(numbers)|find_min(numbers)
sum_of_squares(numbers)|average_length(words)|swap(pair)|unique(items)|chunks(items, size)|read_lines(path)|write_text(path, text)
load_csv(path)|save_json(path, data)|parse_line(line)|sort_by_key(items, key)|filter_positive(numbers)|merge(left, right)
push(stack, item)|pop(stack)|insert(tree, value)|depth(node)|distance(a, b)|norm(vector)|dot(a, b)|scale(vector, factor)"""
_PREFIXES = (
    "def {}:\n", 'def {}:\n    """', "# A small helper\ndef {}:\n    ", "import os\nimport sys\n\n\ndef {}:\n",
    "class Tool:\n    def __init__(self, name):\n        self.name = name\n\n    def {}:\n",
)  # fmt: skip
_SUMMARISE = (
    "Summarise the following text in two sentences.", "Summarise this paragraph briefly.", "Write a short summary of this text.",
    "What are the main points of the following text?", "What is the following text about?", "Write a one-sentence summary of this text.",
    "Give the key ideas of this passage.", "Shorten this text.", "Summarise the following text for a busy reader.",
)  # fmt: skip
_NEAR = 0.5  # share of words in common from which a prompt counts as one of those that are measured


@dataclass(frozen=True)
class Question:
    """One prompt; ``chat``: it is put through the model's chat template."""

    kind: str
    text: str
    chat: bool = True


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[a-z]+", text.lower()))


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.replace("\n", "|").split("|")]


def _stories():
    """Every form and hero, each of them in a few of the places."""
    places = _split(_PLACES)
    for index, form in enumerate(_OPEN_STORIES):
        for other, hero in enumerate(_split(_HEROES)):
            for turn in range(3):
                yield form, hero, places[(index + other + 5 * turn) % len(places)]


def questions(seed: int = 0) -> dict[str, list[Question]]:
    """All prompts but the summaries, by kind, each kind in a fixed random order."""
    made = {
        "open": [form.format(thing) for form in _OPEN_THINGS for thing in _split(_THINGS)]
        + [form.format(matter) for form in _OPEN_MATTERS for matter in _split(_MATTERS)]
        + [form.format(hero, place) for form, hero, place in _stories()],
        "code": [form.format(task) for form in _ASK_CODE for task in _split(_CODE)],
        "prefix": [form.format(name) for form in _PREFIXES for name in _split(_NAMES)],
    }
    measured = [_words(prompt.text) for prompt in load_prompts("all")]
    found: dict[str, list[Question]] = {}
    for kind, texts in made.items():
        kept = [text for text in texts if not near(text, measured)]
        Random(f"{seed} {kind}").shuffle(kept)
        found[kind] = [Question(kind, text, chat=kind != "prefix") for text in kept]
    return found


def near(text: str, measured: Sequence[frozenset[str]]) -> bool:
    """Whether a prompt has most of its words in common with one of those that are measured."""
    words = _words(text)
    return any(len(words & other) > _NEAR * len(words | other) for other in measured)


def summary_of(passage: str, number: int) -> Question:
    """A prompt that asks for a summary of a text that was written before."""
    return Question("summary", f"{_SUMMARISE[number % len(_SUMMARISE)]}\n\n{passage}")
