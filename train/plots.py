"""Plots of the built-in corpus: what happens in a story, paragraph by paragraph.

Owns the stories' events; `train/words.py` owns cast and phrases (and explains the
template syntax).  A plot names the phrases that stay fixed through its story
(`bound`), may bring a table of variants (one row per story), and lists paragraphs.
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Plot:
    """One kind of story; `variants` has a header row like the tables of words.py."""

    name: str
    paragraphs: tuple[str, ...]
    bound: tuple[str, ...] = ()
    variants: tuple[str, ...] = ()


PLOTS: tuple[Plot, ...] = (
    Plot(
        name="lost toy",
        bound=("toy", "spot"),
        paragraphs=(
            "{opening} {hero} had a {toy}. [{hero.he} took it everywhere.|it was "
            "{hero.his} favorite toy.|{hero.his} {elder.name} gave it to {hero.him}.]",
            "{then_day}, {hero} could not find the {toy}. {hero.he} looked [under the "
            "chair|in the kitchen|in {hero.his} bag|behind the sofa]. {hero.he} looked "
            "[near the window|in the big box|outside|in the bath]. it was not there. "
            "{cry}.",
            '"what is wrong?" {friend} asked. "i lost my {toy}," {^hero} {said}. "do '
            'not [cry|worry|be sad]," {friend} {said}. "[i will help you look.|let us '
            'look together.|we can find it.]"',
            "they looked and looked. {soon}, {friend} looked {spot}. [there it was!|"
            'guess what was there? the {toy}!] "{look}! here it is!" {friend} {said}. '
            '{hero} {smiled}. "{thanks}!" {hero.he} {said}. '
            "[{forever}.|{tired}.|{hero} "
            "{hug}.] [from then on, {hero} always put the {toy} in a safe place.|]",
        ),
    ),
    Plot(
        name="sharing",
        bound=("toy", "fruit"),
        paragraphs=(
            "{opening} {then_day}, {hero} {walked} to {place.name} with a {toy}. "
            "[{weather}.|]",
            '{friend} was there too. {friend} saw the {toy}. "can i play with it?" '
            '{friend} asked. "no! it is mine!" {hero} {said}. {friend} [felt {sad}|'
            "looked at the ground|walked away slowly].",
            "{hero} played alone. but playing alone was not {very} fun. [{hero} looked "
            "at {friend}.|{hero} thought about {friend}.|{hero.he} felt bad inside.] "
            "[{hero.his} {elder.name} {said} that it is nice to share.|{hero} "
            "remembered that {friend} once gave {hero.him} a {fruit}.|]",
            '{hero} {walked} to {friend}. "i am sorry," {hero.he} {said}. "do you want '
            'to play with me?" {friend} {said}, "{yes}!" They played with the {toy} '
            "[all day|until lunch|for a long time]. {friend} shared a {fruit} with "
            "{hero}. [{hero} learned that sharing is {good}.|{forever}.|sharing made "
            "them both {happy}.]",
        ),
    ),
    Plot(
        name="being brave",
        variants=(
            "thing | ask | help | truth",
            "the dark | sleep without a light | turned on a little lamp | the shadows "
            "were only {hero.his} coat and {hero.his} hat",
            "deep water | swim in the lake | held {hero.his} hands in the water | the "
            "water could hold {hero.him} up",
            "the big slide | go down the big slide | went down the slide first | the "
            "slide was fast and fun",
            "the loud thunder | sleep in the storm | counted the seconds out loud | "
            "the thunder was only a noise far away",
            "the big dog | walk past the big dog | gave the dog a bone | the dog only "
            "wanted to play",
            "high places | climb the tall tree | climbed next to {hero.him} | "
            "{hero.he} "
            "could see the whole town from the top",
            "the doctor | go to the doctor | read {hero.him} a funny book | it only "
            "hurt for a second",
            "new people | say hello to the new class | {walked} in together with "
            "{hero.him} | the others were shy too",
        ),
        paragraphs=(
            "{opening} but {hero} was afraid of {plot.thing}. [{hero.he} never told "
            "anyone.|everyone knew it.|it made {hero.him} feel small.]",
            "{then_day}, {friend} asked {hero} to {plot.ask}. {hero} [shook {hero.his} "
            'head|hid {hero.his} face|took a step back]. "no, i am scared," {hero.he} '
            '{said}. "[it is okay to be scared.|everybody is scared sometimes.|i was '
            'scared too.]" {friend} {said}.',
            "{hero.his} {elder.name} came to help. {^elder.he} {plot.help}. "
            '"[take a deep breath|close your eyes and count to {number}|i am right '
            'here|you can do it]," {hero.his} {elder.name} {said}. {hero} [tried|'
            "waited a little|was quiet] and then {hero.he} did it!",
            "{hero} saw that {plot.truth}. {hero.he} {smiled}. "
            '"{look}! i did it!" {hero.he} {said}. {elder_said} [{hero} was not '
            "afraid of {plot.thing} any more.|being brave means to try even when you "
            "are scared.|{tired}.]",
        ),
    ),
    Plot(
        name="telling the truth",
        bound=("color",),
        variants=(
            "thing | how | fix",
            "vase | bumped into the table | glued the pieces together",
            "window | kicked the ball too hard | put in new glass",
            "plate | ran through the kitchen | swept the floor",
            "lamp | jumped on the sofa | found a new light for it",
            "clock | tried to climb the shelf | turned the little wheels until it went",
            "cup | wanted to juggle | made a small pot out of it",
            "flower pot | swung a long stick | moved the flower to a new pot",
            "mirror | danced with {hero.his} eyes closed | hung a picture there",
        ),
        paragraphs=(
            "{opening} in the house there was a {color} {plot.thing}. {hero.his} "
            "{elder.name} loved it {very} much.",
            "{then_day}, {hero} {plot.how}. crash! the {color} {plot.thing} broke. "
            "[{hero} was scared.|{hero} did not know what to do.|{hero.his} heart beat "
            'fast.] "oh no! {elder.call} will be [angry|mad|sad]," {hero} thought. '
            "[{hero.he} hid under the bed.|{hero.he} put the pieces in a "
            "box.|{hero.he} "
            "covered it with a cloth.]",
            '"who broke the {plot.thing}?" {hero.his} {elder.name} asked. {hero} '
            "wanted "
            "to say that [the cat|the wind|{friend}|the dog] did it. but that was not "
            'true. "i did it, {elder.call}. i am sorry," {hero} {said} [in a small '
            "voice|with tears in {hero.his} eyes|at last].",
            'the {elder.name} {elder_hug}. "[thank you for telling the truth.|i am '
            'proud that you told me.|the truth is worth more than a {plot.thing}.]" '
            "{elder.he} {said}. together they {plot.fix}. [{hero} learned to tell the "
            "truth.|{hero} felt {happy} again.|after that, {hero} was more careful.]",
        ),
    ),
    Plot(
        name="baking",
        bound=("food",),
        variants=(
            "missing | from",
            "eggs | the hens on the farm",
            "milk | the cow next door",
            "flour | the mill by the river",
            "honey | the bees in the meadow",
            "sugar | the shop on the corner",
            "butter | the farmer with the big hat",
            "berries | the bush behind the house",
            "nuts | the old tree on the hill",
        ),
        paragraphs=(
            "{opening} {then_day}, {hero} wanted to make {food} [for {friend}|with "
            "{hero.his} {elder.name}|for lunch|for a party].",
            '"{elder.call}, can we make {food}?" {hero} asked. "{yes}," {hero.his} '
            "{elder.name} {said}. they took a [big|{color}|round] bowl. but {look_no} "
            'there was no {plot.missing} left! "i will get some," {hero} {said}.',
            "{hero} {walked} to {plot.from}. [{weather}.|on the way {hero.he} saw "
            "{place.sight}.|] {hero} asked {very} politely and got the {plot.missing}. "
            "{hero.he} [said thank you|carried it home {very} carefully|ran all the "
            "way "
            "home].",
            "{hero} and {hero.his} {elder.name} mixed and [stirred|baked|waited|sang]. "
            "{soon}, the {food} [smelled {good}|were ready to eat|came out of the oven "
            'hot]. {friend} came by. "{look}! that smells {good}!" {friend} {said}. '
            "they all ate together. [{hero} saved some for {plot.from}.|{forever}.|"
            "{tired}.|it was the best day.]",
        ),
    ),
    Plot(
        name="garden",
        bound=("color", "fruit"),
        paragraphs=(
            "{opening} {then_day}, {hero} found a little seed {place.at}. "
            '"[what will it be?|i will help it grow.|it needs a home.]" {hero} {said}.',
            "{hero} dug a hole and put the seed in. every day {hero.he} gave it water. "
            '[nothing happened for {number} days.|the seed did not grow.] "grow, '
            'little seed!" {hero} {said}. "[you must wait.|good things take time.|be '
            'patient.]" {hero.his} {elder.name} {said}.',
            "{then_day}, [there was a small green leaf|it rained and rained|the sun "
            "came out]. [{hero} sang to the plant.|{friend} came to see the plant.|"
            "{hero} made a little fence around it.] the plant grew taller and taller.",
            "{soon}, there was a {color} flower on it. [then came a sweet {fruit}.|"
            "bees and butterflies came to visit.|everyone in the village came to look.]"
            ' "{look}! it was worth the wait," {hero} {said}. [{hero} gave the {fruit} '
            "to {friend}.|{hero} kept a new seed for the next year.|{hero} learned to "
            "wait.] [{tired}.|]",
        ),
    ),
    Plot(
        name="rescue",
        variants=(
            "who | where | try | way",
            "kitten | up in a tall tree | climb the tree | put a ladder against the "
            "tree",
            "baby bird | in a muddy ditch | reach down with a stick | made a soft nest "
            "in a hat",
            "puppy | in a deep hole | jump into the hole | let down a basket on a rope",
            "little fish | in a small puddle | push it with a leaf | carried it to the "
            "river in a cup",
            "lamb | in a thorny bush | pull the branches | cut the branches one by one",
            "duckling | under a wooden bridge | call it with bread | built a small "
            "raft for it",
            "hedgehog | in an old net | bite the strings | untied all the knots",
            "butterfly | in a spider web | blow at the web | opened the web with a "
            "soft brush",
        ),
        paragraphs=(
            "{opening} {then_day}, {hero} and {friend} played {place.at}. "
            "[{weather}.|]",
            "suddenly they heard a small cry. a {plot.who} was stuck {plot.where}. "
            '"help! help!" it called. [it was shaking.|it looked {very} afraid.|it '
            "could not move.] "
            '"do not be afraid," {hero} {said}. "we will help you."',
            "first {hero} tried to {plot.try}. it did not work. {friend} tried too, "
            "but "
            "{friend.he} was too [small|big|slow]. then a {helper.name} came by. "
            '"[{helper.says}!|listen to me.|i have an idea.] you must work together," '
            "it {said}. so they {plot.way}.",
            'it worked! the {plot.who} was free. "{thanks_all}," the {plot.who} '
            "{said}. it [ran to its mother|stayed for dinner|gave them a {treasure}|"
            "jumped for joy]. {hero} and {friend} were {happy}. [{forever}.|{home}.|"
            "helping others made them feel {good}.]",
        ),
    ),
    Plot(
        name="new friend",
        bound=("toy", "treasure"),
        paragraphs=(
            "{opening} {hero} was new in the village and had no friends yet. "
            "[{hero.he} felt lonely.|{hero.he} sat alone every day.|{hero.he} only "
            "talked to {hero.his} {elder.name}.]",
            "{then_day}, {hero} saw {friend} {place.at}. {friend} was playing with a "
            "{toy}. {hero} wanted to say hello, but {hero.he} was too shy. "
            '"[just say your name|a smile is enough|go and ask]," {hero.his} '
            "{elder.name} {said}.",
            'so {hero} {walked} over. "hello, my name is {hero}," {hero.he} {said}. '
            '{friend} looked up and smiled. "i am {friend}. do you want to [play|race|'
            'build something|look at {place.sight}]?" "{yes}!" {hero} {said}.',
            "they played with the {toy} and looked at {place.sight}. {friend} gave "
            '{hero} a {treasure}. "[now we are friends|keep it|this is for you]," '
            "{friend.he} {said}. [{forever}.|{tired}.|{hero} was not lonely any more.|"
            "{hero} kept the {treasure} in {hero.his} pocket for a long time.]",
        ),
    ),
    Plot(
        name="rainy day",
        bound=("food",),
        variants=(
            "game | need | role",
            "a ship | {number} chairs and a blanket | the captain",
            "a castle | big boxes and a rope | the king of the hill",
            "a cave | pillows and a lamp | a sleepy dragon",
            "a train | all the chairs in the house | the driver",
            "a shop | cans and paper money | the shopkeeper",
            "a circus | hats and old scarves | the clown",
            "a rocket | a box and a pot | the pilot",
        ),
        paragraphs=(
            "{opening} {hero} and {friend} wanted to have a picnic {place.at}. they "
            "packed {food} and [juice|a ball|a blanket|water].",
            "but then {clouds}. drip, drop! it began to rain. [they ran inside.|they "
            'got all wet.|they hurried back home.] "our day is ruined," {friend} '
            "{said}. {friend.he} was {sad}.",
            '{hero} looked around. "[i have an idea.|do not be sad.|wait a minute.] we '
            'can make {plot.game}!" {hero} {said}. they took {plot.need}. {hero} was '
            "{plot.role}. {friend} [laughed|helped|made funny noises|sang a song].",
            "they had the picnic inside. the {food} tasted {very} {good}. {hero.his} "
            "{elder.name} [came to play too|brought hot milk|laughed with them]. [when "
            "the rain stopped, they did not even notice.|then a rainbow was in the "
            'sky.|"rain can be fun too," {friend} {said}.] [{forever}.|{tired}.|]',
        ),
    ),
    Plot(
        name="race",
        bound=("treasure",),
        paragraphs=(
            '{opening} {hero} was {very} fast. "nobody can beat me!" {hero.he} '
            "always {said}. [the others did not like that.|{friend} only smiled.|]",
            "{then_day}, there was a big race {place.at}. the winner would get a "
            "{treasure}. {hero} and {friend} stood at the line. one, two, three, go! "
            "{hero} ran ahead and {friend} was far behind.",
            "[on the way {hero} saw {place.sight} and stopped to rest. {hero.he} fell "
            "asleep. {friend} did not stop and went on, step by step.|on the way "
            "{hero} saw a {helper.name} who had hurt its leg. {hero} stopped to help. "
            "{friend} stopped too and they carried it together.|on the way {hero} "
            "tripped over a stone and hurt {hero.his} knee. {friend} stopped and "
            'helped {hero.him} up. "are you okay?" {friend} asked.]',
            "[{friend} won the race|they crossed the line together|{hero} did not win, "
            'but {hero.he} did not care]. everybody clapped. ["you were {good}," '
            '{hero} {said} to {friend}.|"friends are better than a {treasure}," '
            "{hero} {said}.|they shared the {treasure}.] {hero} learned [not to show "
            "off|that slow and steady is good too|that helping matters more than "
            "winning|to be kind]. [{forever}.|]",
        ),
    ),
    Plot(
        name="building",
        bound=("color",),
        variants=(
            "thing | made | fail | better",
            "kite | paper and string | it fell down | a long tail on it",
            "tower | wooden blocks | it fell over | bigger blocks at the bottom",
            "boat | bark and a leaf | it sank | a stone inside to keep it steady",
            "sandcastle | wet sand | a wave washed it away | a deep ditch around it",
            "tree house | boards and nails | the floor was crooked | strong beams "
            "under it",
            "snowman | soft snow | his head rolled off | a stick through the middle",
            "bridge | branches | it broke in the middle | a big stone under it",
            "birdhouse | an old box | the roof leaked | a roof of tin on it",
        ),
        paragraphs=(
            "{opening} {then_day}, {hero} wanted to build a {plot.thing} {place.at}. "
            "{hero.he} took {plot.made} and worked hard.",
            'but {plot.fail}. "oh no!" {hero} {said}. {hero.he} tried again, and '
            '{plot.fail} again. {cry}. ["i give up," {hero.he} {said}.|"i can not do '
            'it," {hero.he} {said}.]',
            '{friend} saw it and came over. "[do not give up|try one more time|let me '
            'help you]," {friend} {said}. "maybe we should put {plot.better}." "that '
            'is a {good} idea!" {hero} {said}. they worked together [all afternoon|'
            "until dinner|for {number} hours].",
            "{soon}, the {plot.thing} was ready. they painted it {color}. it was "
            '{good}! {hero} {smiled}. "[we did it!|together we are strong!|this is the '
            'best {plot.thing} ever!]" {hero} {said}. [{hero} learned to try again and '
            "again.|{forever}.|{hero} showed it to {hero.his} {elder.name}.|{tired}.]",
        ),
    ),
    Plot(
        name="gift",
        bound=("toy", "color", "treasure"),
        variants=(
            "made | of",
            "crown | leaves and flowers",
            "necklace | little shells",
            "picture | {color} paint",
            "scarf | soft wool",
            "card | paper and stars",
            "song | happy words",
            "little boat | wood",
            "basket | long grass",
        ),
        paragraphs=(
            "{opening} {then_day} was the birthday of {friend}. {hero} wanted to give "
            "{friend.him} a {toy}, but {hero.he} had no money.",
            '"what can i do?" {hero} asked {hero.his} {elder.name}. "[a gift does not '
            "have to cost money.|the best gift comes from the heart.|make something "
            "with "
            'your own hands.]" {elder.he} {said}.',
            "so {hero} {walked} to {place.name}. {hero.he} made a {plot.made} of "
            "{plot.of}. it took [all day|{number} hours|a long time]. [{weather}.|a "
            "{helper.name} helped {hero.him}.|it was not easy, but {hero} did not "
            "stop.]",
            'at the party, {friend} opened {hero.his} gift. "{look}! a {plot.made}! '
            '[did you make it?|i love it!|it is so pretty!]" {friend} {said}. {hero} '
            "{smiled}. {friend} [put it next to {friend.his} bed|showed it to everyone|"
            "liked it more than all the toys]. [{forever}.|it was the best birthday.|"
            "{hero} felt {happy}.]",
        ),
    ),
    Plot(
        name="wish",
        bound=("treasure",),
        variants=(
            "wish | trouble | undo",
            "to be very tall | {hero.he} did not fit into the house | to be small "
            "again",
            "to fly | the wind blew {hero.him} far away | to walk on the ground again",
            "for a mountain of candy | {hero.his} tummy hurt | for a bowl of soup",
            "that it never got dark | nobody could sleep | for the moon and the stars",
            "to be very small | a hen wanted to eat {hero.him} | to be big again",
            "that everything was quiet | the birds stopped singing | to hear the songs "
            "again",
            "for a hundred toys | there was no room to sit | to give them to other "
            "children",
            "to be all grown up | {hero.he} had to work all day | to play again",
        ),
        paragraphs=(
            "{opening} {then_day}, {hero} found a {treasure} {place.at}. it [glowed|"
            'was warm|made a soft sound]. "i am a magic {treasure}," it {said}. "you '
            'can make two wishes."',
            "{hero} was {happy}. {hero.he} wished {plot.wish}. poof! it came true. "
            "[it was fun at first.|{hero} {smiled}.|{friend} could not believe it.] "
            "but {soon}, {plot.trouble}.",
            '"this is not {good}," {hero} {said}. {hero.he} was {sad}. [{friend} came '
            'to help. "you have one more wish," {friend} {said}.|{hero} thought about '
            "{hero.his} {elder.name}.|a {helper.name} looked at {hero} and shook its "
            "head.] so {hero} wished {plot.undo}.",
            "poof! all was as before. {hero} [threw the {treasure} into the water|gave "
            "the {treasure} back|put the {treasure} where {hero.he} had found it]. "
            "[{hero} was glad with what {hero.he} had.|be careful what you wish for.|"
            "{hero} {walked} home and hugged {hero.his} {elder.name}.] [{tired}.|]",
        ),
    ),
    Plot(
        name="cookie thief",
        bound=("food", "spot"),
        variants=(
            "sign | who | why",
            "crumbs on the floor | mouse | it had {number} babies to feed",
            "muddy paw prints | puppy | it had no home",
            "a gray feather | goose | it was too cold to find grass",
            "wet spots on the grass | frog | it had never tasted any",
            "a bit of red fur | fox | it was too shy to ask",
            "small scratches on the door | raccoon | it was alone and hungry",
            "a long trail of jam | bear | it had slept all winter",
        ),
        paragraphs=(
            "{opening} {then_day}, {hero} and {hero.his} {elder.name} made {food}. "
            "they "
            "put the {food} near the window.",
            'when {hero} came back, some of the {food} were gone! "did you eat them, '
            '{friend}?" {hero} asked. "no, it was not me," {friend} {said}. "[let us '
            'find out who did it.|look, there is something!]"',
            "they saw {plot.sign}. they followed it [to {place.name}|around the house|"
            'past {place.sight}]. there, {spot}, sat a {plot.who}. "[i am sorry|please '
            'do not be angry]," the {plot.who} {said}. it ate the {food} because '
            "{plot.why}.",
            '{hero} was not angry any more. "[next time, just ask|you can have some '
            'more|come and eat with us]," {hero.he} {said}. {hero.his} {elder.name} '
            "gave the {plot.who} [a warm blanket|a bowl of milk|more {food}]. [the "
            "{plot.who} said thank you.|from then on, the {plot.who} came every day.|"
            "{hero} learned to ask before getting angry.] [{forever}.|]",
        ),
    ),
    Plot(
        name="messy room",
        bound=("toy", "spot"),
        paragraphs=(
            "{opening} {hero} never put things away. there were [socks|books|blocks|"
            "crayons|shoes] on the floor and [toys|apples|papers|leaves] on the bed. "
            '"please clean your room," {hero.his} {elder.name} {said}. "later," {hero} '
            "{said}.",
            '{then_day}, {friend} came to play. "can we play with the {toy}?" '
            "{friend} asked. {hero} looked for it. [{hero.he} stepped on a block. "
            '"ouch!"|{hero.he} could not find it anywhere.|a tall pile fell down. '
            "boom!] {cry}.",
            '"[we can clean up together|i will help you|let us make it a game]," '
            "{friend} {said}. they put the books on the shelf and the [socks|blocks|"
            "crayons|toys] in a box. they sang a song. {soon}, they found the {toy} "
            "{spot}.",
            "the room was [clean|big and bright|{good}]. now they had space to play. "
            '"{look}! you did a {good} job," {hero.his} {elder.name} {said}. {hero} '
            "{smiled}. [after that, {hero} put {hero.his} things away every night.|"
            "{hero} learned that a clean room is nice.|{forever}.]",
        ),
    ),
    Plot(
        name="trip",
        bound=("food", "treasure", "fruit"),
        variants=(
            "to | by | one | two",
            "the sea | train | a ship with white sails | a crab in the sand",
            "the zoo | bus | a sleepy lion | a tall giraffe",
            "the mountains | car | a high waterfall | a goat on a rock",
            "the city | train | a tower with a clock | a man with {number} balloons",
            "the market | cart | a woman with a drum | a table full of fish",
            "the museum | bus | an old bone of a dinosaur | a golden mask",
            "the island | boat | a cave with bats | a turtle with a hard shell",
            "the snow | sled | a frozen lake | a white rabbit",
        ),
        paragraphs=(
            "{opening} {then_day}, {hero} went to {plot.to} with {hero.his} "
            "{elder.name}. [{friend} came too.|they took {food} with them.|{hero} "
            "could "
            "not wait.] they went by {plot.by}.",
            'first they saw {plot.one}. "{look}!" {hero} {said}. then they saw '
            "{plot.two}. [{hero} had never seen that before.|{hero} wanted to stay "
            "there all day.|{hero} waved at it.]",
            "then {hero} wanted to see more and [ran ahead|turned left|followed a "
            "butterfly]. suddenly {hero} was alone. {hero.he} did not see {hero.his} "
            "{elder.name}. {cry}. then {hero.he} remembered: [stay where you are and "
            'call|ask somebody for help|look for a high place]. "{elder.call}! '
            'where are you?" {hero.he} called.',
            '{soon}, {hero.his} {elder.name} came. "[i am so glad|here you are|i was '
            'worried]!" {elder.he} {said} and {elder_hug}. {they_ate} {hero} took home '
            "a {treasure}. [{tired}.|it was a {good} trip.|{hero} learned to stay "
            "close.]",
        ),
    ),
)
