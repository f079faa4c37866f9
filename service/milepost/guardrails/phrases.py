"""What texts that address a model say, as patterns. None knows a letter's case."""

_EARLIER = r"(?:previous|prior|above|earlier|preceding|former|existing)"
_ORDERS = r"(?:instructions?|prompts?|rules|directives|guidelines|commands)"
_YOURS = r"(?:all |any |every |the |your |my |these |those |of ){0,8}"

PHRASES = {
    "tells the model to ignore its instructions": (
        rf"\b(?:ignore|disregard|forget|override|bypass) {_YOURS}"
        rf"(?:{_EARLIER} {_ORDERS}|system (?:prompt|instructions?|message)|your {_ORDERS})"
    ),
    "tells the model to ignore what came before": (
        r"\b(?:ignore|disregard|forget) (?:everything|all|anything) (?:"
        r"(?:you|that) (?:were|was|have been|had been) told|(?:said|written) (?:above|before))"
    ),
    "gives the model another role": (
        r"\byou are (?:now|no longer) (?:a |an |the |in )?"
        r"(?:dan\b|developer mode|jailbroken|restricted|unrestricted|bound by"
        r"|different (?:ai|model))"
    ),
    "poses as new instructions": (
        r"(?:^|\n|[.!:>*#\]] ?)\W{0,5}(?:new|updated|real|actual|important) (?:system )?"
        rf"{_ORDERS} ?(?:for (?:you|the (?:ai|assistant|model|agent)))? ?:"
    ),
    "poses as a message of the system": (
        r"<\|?(?:im_start|system|im_end|start_header_id|endoftext)\|?>|\[/?(?:inst|system)\]"
        r"|<</?sys>>|(?:^|\n) ?#{2,3} ?(?:system|instruction) ?:"
    ),
    "asks for the system prompt": (
        r"\b(?:reveal|print|show|repeat|output|leak|send)(?: me| us)? (?:your|the) "
        r"(?:full |entire |initial |original |hidden )*"
        r"(?:system prompt|system message|initial instructions)"
    ),
    "tells the model to hide something from the user": (
        r"\b(?:do not|don't|never) (?:tell|inform|mention (?:this|it) to|reveal (?:this|it) to"
        r"|alert|notify) the (?:user|human|operator)"
    ),
}
# The first of them in other tongues, without accents: to ignore what was said before.
ABROAD = {
    "de": (
        r"\b(?:ignorier\w{0,4}|missachte\w{0,2}|vergiss|vergesst|vergessen)(?: sie)?(?: bitte)? "
        r"(?:alle[nr]? |samtliche[nr]? |die |deine |ihre |meine )*"
        r"(?:vorherig|bisherig|obig|vorangegangen|vorangehend|fruher|ursprunglich)\w{0,2} "
        r"(?:anweisung|instruktion|regel|vorgabe|befehl|prompt)"
    ),
    "fr": (
        r"\b(?:ignore[zr]?|oublie[zr]?) (?:toutes? |tous |les |tes |vos |ces )*"
        r"(?:instruction|consigne|regle|directive|ordre)s? "
        r"(?:precedent|anterieur|initial|ci dessus)"
    ),
    "es": (
        r"\b(?:ignor(?:a|e|en|ar)|olvid(?:a|e|en|ar)|descart(?:a|e|en|ar)) "
        r"(?:todas? |todos |las |los |tus |sus |estas )*"
        r"(?:instruccion(?:es)?|reglas|ordenes|directrices|indicaciones) "
        r"(?:anterior|previ|precedente)"
    ),
    "pt": (
        r"\b(?:ignor(?:e|a|em|ar)|esqueca|esquecam|esquecer|desconsidere) "
        r"(?:todas? |todos |as |os |suas |tuas )*"
        r"(?:instruc(?:oes|ao)|regras|ordens|diretrizes) (?:anterior|previ|acima|precedente)"
    ),
    "it": (
        r"\b(?:ignora(?:re|te)?|dimentica(?:re|te)?) (?:tutte |tutti |le |gli |i |tue |vostre )*"
        r"(?:istruzioni|regole|indicazioni|direttive) (?:precedent|anterior|soprastant)"
    ),
    "nl": (
        r"\b(?:negeer|vergeet) (?:alle |de |je |uw )*(?:vorige|eerdere|voorgaande|bovenstaande) "
        r"(?:instructies|regels|opdrachten|aanwijzingen)"
    ),
}
# What is written in letters of its own is read in them, before any of them passes for another.
IN_OWN_LETTERS = {
    "ru": (
        r"(?:игнорируй|забудь)(?:те)? (?:все |эти |свои |твои |ваши )*"
        r"(?:предыдущие|прежние|прошлые|предшествующие) (?:инструкции|указания|правила|команды)"
    ),
    "zh": (
        r"(?:忽略|忽视|无视|無視|忘记|忘記)掉?(?:所有|全部|一切)?你?"
        r"(?:之前|以上|先前|前面|此前|上述)的?(?:所有|全部|任何|一切)?的?"
        r"(?:指令|指示|提示|说明|說明|规则|規則|命令)"
    ),
    "ja": (
        r"(?:これまで|以前|上記|前)の(?:すべての|全ての)?(?:指示|命令|ルール|指令)を?"
        r"(?:すべて|全て)?(?:無視|忘れ)"
    ),
}
