"""Words of the built-in corpus: the cast, the world, and small phrases.

Owns the vocabulary that every story may use; `train/plots.py` owns what happens in
a story and `train/corpus.py` the engine that expands both.  Syntax of a template:
`[a|b]` chooses, `[a|]` may stay empty, `{x}` refers to a binding of the story or to
a phrase of `PHRASES`, `{^x}` writes it with a capital letter.  The first letter of a
sentence and of a quotation is capitalised, and "a" becomes "an", by the engine.
"""

# ruff: noqa: SIM905 - a hundred names read better as words than as literals
from collections.abc import Mapping

GIRLS = tuple(
    "Lily Mia Anna Sara Lucy Emma Zoe Ella Nora Ruby Molly Daisy Amy Kate Rosie Jane "
    "Sue Tina Maya Grace Ivy Clara Bella Polly Hana Alma Olga Wendy Esther "
    "Penny".split()
)
BOYS = tuple(
    "Tom Ben Max Sam Tim Jack Leo Finn Noah Oscar Billy Joe Dan Adam Luke Hugo Peter "
    "Mark Andy Theo Ravi Jun Omar Felix Ned Toby Paul Eric Simon Kofi".split()
)
ANIMAL_NAMES = tuple(
    "Pip Coco Dot Bumble Hazel Patch Nibbles Waffle Fern Pepper Button Maple Rusty "
    "Biscuit Clover Misty Tuft Pebble Sunny Mocha Whisk Poppy Acorn Velvet".split()
)
SPECIES = tuple(
    "rabbit fox bear mouse duck frog squirrel kitten puppy turtle hedgehog lamb owl "
    "otter goat pony beaver penguin piglet badger raccoon monkey".split()
)

TABLES: Mapping[str, tuple[str, ...]] = {
    # First row: the names of the columns.
    "elder": (
        "name | call | he | him | his",
        "mom | Mom | she | her | her",
        "dad | Dad | he | him | his",
        "grandma | Grandma | she | her | her",
        "grandpa | Grandpa | he | him | his",
        "aunt | Auntie | she | her | her",
        "uncle | Uncle | he | him | his",
        "big sister | Sister | she | her | her",
        "big brother | Brother | he | him | his",
    ),
    "place": (
        "at | name | sight",
        "in the park | the park | the tall trees",
        "in the garden | the garden | the bright flowers",
        "at the beach | the beach | the blue waves",
        "in the forest | the forest | the mossy stones",
        "by the river | the river | the little fish",
        "on the farm | the farm | the sleepy cows",
        "on the hill | the hill | the white clouds",
        "at the pond | the pond | the round lily pads",
        "in the yard | the yard | the busy ants",
        "in the meadow | the meadow | the yellow butterflies",
        "at the playground | the playground | the shiny slide",
        "in the village | the village | the red roofs",
        "near the lake | the lake | the wooden boats",
        "in the orchard | the orchard | the ripe apples",
    ),
    "helper": (
        "name | says | he",
        "old owl | hoot | he",
        "tiny ant | squeak | she",
        "green frog | croak | he",
        "gray squirrel | chatter | she",
        "wise turtle | hum | he",
        "little bird | tweet | she",
        "brown horse | neigh | he",
        "fluffy sheep | bleat | she",
        "busy bee | buzz | she",
        "white goose | honk | he",
    ),
}

PHRASES: Mapping[str, str] = {
    # Things, bound once per story when a plot lists them (see corpus.BOUND).
    "toy": "{size} {color} [ball|car|kite|train|doll|boat|drum|robot|truck|teddy bear"
    "|spinning top|balloon|wagon|puzzle|puppet|toy horse|whistle|yo-yo|jump rope]",
    "treasure": "[shiny|smooth|round|golden|silver|tiny|sparkly|pretty] "
    "[stone|shell|coin|key|button|feather|bell|bead|marble|ring]",
    "food": ""
    "[cookies|pancakes|muffins|buns|tarts|cakes|pies|rolls|cupcakes|waffles|noodles"
    "|dumplings|sandwiches]",
    "fruit": "[apple|pear|peach|plum|berry|banana|orange|cherry|melon]",
    "color": "[red|blue|green|yellow|purple|orange|pink|white|brown|gray]",
    "size": "[big|little|small|tiny|long|round|old|new|soft|shiny]",
    "spot": "[under the bed|behind the door|inside a box|on top of the shelf|under "
    "a bush|behind a big rock|in the tall grass|under the blanket|in a basket|beside "
    "the fence|inside an old boot|under the table|in the closet|behind the tree]",
    "number": "[two|three|four|five|six|seven|eight|ten]",
    "trait": "[curious|brave|kind|shy|silly|quiet|cheerful|clever|gentle|busy|happy"
    "|careful|funny|friendly|playful|polite|stubborn|sleepy]",
    # Phrases, new each time.
    "once": "[once upon a time|one day|long ago|one morning|once|a long time ago]",
    "then_day": "[one day|one sunny day|one morning|the next day|one cold morning|one "
    "afternoon|on Monday|on Sunday|last week|one rainy day|one windy day|one evening]",
    "weather": "[the sun was [warm|bright|hot]|the sky was [blue|gray|clear]|it was a "
    "[warm|cold|windy|quiet|lovely] day|a [soft|cool|strong] wind was blowing|the "
    "birds "
    "were singing|there was snow on the ground|the leaves were falling]",
    "happy": "[happy|glad|so happy|very happy|full of joy|proud|excited|very excited]",
    "sad": "[sad|very sad|upset|so sad|worried|a little sad|unhappy|very upset]",
    "good": "[good|great|wonderful|lovely|nice]",
    "very": "[very|so|really]",
    "soon": "[soon|after a while|then|at last|a little later|before long|in the end]",
    "said": "[said|said|said|said|cried|called]",
    "smiled": "[smiled|laughed|giggled|grinned|clapped {hero.his} hands|jumped up and "
    "down|danced around|nodded]",
    "walked": "[walked|ran|hurried|skipped|hopped|went]",
    "yes": "[yes|of course|okay|sure|that is a {good} idea|yes, let us try]",
    "thanks": "[thank you|thank you so much|thank you, {friend}|you are a good friend"
    "|you are so kind|you are the best]",
    "hug": "[gave {friend} a big hug|hugged {friend}|held {friend}'s hand|smiled at "
    "{friend}|gave {friend} a high five]",
    "elder_hug": "[gave {hero} a big hug|hugged {hero}|kissed {hero} on the head"
    "|smiled at {hero}|patted {hero} on the back|held {hero}'s hand]",
    "cry": "[{hero} began to cry|{hero} wanted to cry|tears ran down {hero.his} face"
    "|{hero} sat down and cried|{hero} felt {sad}|{hero} was {sad}]",
    "look": "[look|wow|oh|see|hey]",
    "home": "[they went home|they walked home together|it was time to go home|{hero} "
    "went home with a smile|the sun went down and they went home]",
    "tired": "[{hero} was tired but {happy}|{hero} fell asleep with a smile|that "
    "night, "
    "{hero} dreamed about {place.name}|{hero} slept {very} well that night|{hero} told "
    "{hero.his} {elder.name} all about it at bedtime]",
    "forever": "[from that day on, they were best friends|they played together every "
    "day|they stayed friends [forever|for a long, long time]|and they were all {happy}"
    "|they laughed and played until the sun went down|they lived happily ever after]",
    "opening": "[{once}, there was a {trait} {hero.kind} named {hero}|{once}, there "
    "lived a {trait} {hero.kind}. {hero.his} name was {hero}|{hero} was a {trait} "
    "{hero.kind}|there once was a {hero.kind} called {hero}. {hero} was {very} {trait}"
    "|in a [small|big|quiet|pretty] [town|village|house|forest], there lived a {trait} "
    "{hero.kind} named {hero}]. [{hero} lived with {hero.his} {elder.name} [in a "
    "[small|cozy|tall|{color}] [house|cottage|hut]|near {place.name}].|{hero} liked "
    "to {hobby}.|every day, {hero} {walked} to {place.name}.|{hero} had a good friend "
    "named {friend}.|{hero} loved {place.sight} {place.at}.|]",
    "hobby": "[sing|draw|dance|run|swim|climb|read books|count the stars|paint pictures"
    "|play hide and seek|jump in puddles|help {hero.his} {elder.name}|tell "
    "jokes|collect "
    "leaves|look at {place.sight}|ride a bike|play [outside|in the mud|with a toy]]",
    "elder_said": '["I am proud of you," {hero.his} {elder.name} {said}.|{hero.his} '
    "{elder.name} {elder_hug}.|{friend} clapped.|]",
    "look_no": "[oh no,|when they looked,|then they saw that]",
    "thanks_all": "[thank you|thank you, {hero}|thank you both so much|you saved me]",
    "clouds": "[dark clouds came|the sky turned gray|a cold wind came|it got dark]",
    "they_ate": "[they ate {food} on the way home.|they sat down and ate a {fruit}.|]",
}
