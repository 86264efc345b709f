"""What the core says when something cannot be done, for visitors who read another language.

The core speaks English. An English text here is the shape of one of its messages, so that a message is recognised
and its names and numbers are put into the visitor's language. A test makes the core say them.
"""

from __future__ import annotations

# key: (English shape, Japanese text)
PAIRS = {
    "core.exit_layer": (
        "exit_layer={value}: this model has {layers} layers, choose 1..{most}",
        "出口の層 {value}：このモデルは {layers} 層です。1 から {most} の間で選んでください。",
    ),
    "core.oracle": (
        "the oracle is defined for greedy decoding only: set temperature to 0",
        "オラクルはサンプリングなしでだけ使えます。温度を 0 にしてください。",
    ),
    "core.needs_draft": (
        "the method {method} needs a draft model: give one, or choose another method",
        "方式 {method} にはドラフトモデルが必要です。ドラフトのある組か、別の方式を選んでください。",
    ),
    "core.no_draft_for": (
        "{draft} cannot draft for {target}: {why}; choose a draft model of the same family",
        "{draft} は {target} のドラフトになれません（{why}）。同じ系統のドラフトモデルを選んでください。",
    ),
    "core.no_layers": (
        "{name} is {what}, whose layers cannot be run apart here: {rest}",
        "{name} の層はここでは分けて計算できません。ドラフトモデルかプロンプト参照の方式を選んでください。",
    ),
    "core.prompt_empty": ("the prompt is empty: {do}", "プロンプトが空です。続きを書かせる文章を入力してください。"),
    "core.prompt_unknown": (
        "the prompt has no token of {name}: type a prompt in characters that it knows",
        "プロンプトに {name} の知っている文字がありません。別の文字で入力してください。",
    ),
    "core.prompt_long": (
        "the prompt has {tokens} tokens, {name} takes {most} in all: shorten it",
        "プロンプトは {tokens} トークンですが、{name} が扱えるのは全部で {most} トークンまでです。短くしてください。",
    ),
    "core.memory": (
        "{name} needs {needed} GB on {place} and {free} GB are free: {tips}",
        "{name} には {needed} GB のメモリが必要ですが、空きは {free} GB です。小さいモデルを選んでください。",
    ),
    "core.memory_full": (
        "{name} does not fit in the memory of {place}: choose a smaller model",
        "{name} は {place} のメモリに収まりません。小さいモデルを選んでください。",
    ),
    "core.not_here": (
        "{name} is not on this machine: run {command}",
        "{name} はこの装置にありません。{command} を実行してください。",
    ),
    "core.offline": (
        "{name} is not on this machine and HF_HUB_OFFLINE=1 forbids fetching it: unset it, or choose another",
        "{name} はこの装置になく、HF_HUB_OFFLINE=1 のため取得もできません。設定を外すか、別のモデルを選んでください。",
    ),
    "core.unreachable": (
        "cannot reach the Hub for {name}: check the network, or choose a model that is here",
        "{name} を取得する Hub に接続できません。ネットワークを確かめるか、この装置にあるモデルを選んでください。",
    ),
    "core.broken_off": (
        "the download of {name} broke off ({why}): start it again",
        "{name} の取得が途中で切れました（{why}）。もう一度実行してください。",
    ),
    "core.gated": (
        "{name} is gated{more}: {do}",
        "{name} の利用には許可が必要です。Hub のページで条件に同意し、HF_TOKEN にトークンを設定してください。",
    ),
    "core.pause": (
        "the Hub asks for a pause (too many requests) before it gives {name}: try again in some minutes",
        "Hub が {name} の取得を一時的に断っています（要求が多すぎます）。数分後にもう一度実行してください。",
    ),
    "core.disk_full": (
        "the disk {where}: make room, or point {variable} at a folder on a larger disk",
        "ディスクがいっぱいです。空きを作るか、{variable} に別のフォルダを設定してください。",
    ),
    "core.disk_room": (
        "{name} takes {needed} GB of disk and {place} has {free} GB: make room, or point {variable} at a folder on a larger disk",
        "{name} にはディスク {needed} GB が必要ですが、空きは {free} GB です。空きを作るか、{variable} に別のフォルダを設定してください。",
    ),
    "core.damaged": ("{what}: fetch the model again", "モデルのファイルが壊れています（{what}）。もう一度取得してください。"),
    # files of runs
    "core.line": ("line {number}: {why}", "{number} 行目：{why}"),
    "core.not_json": ("not JSON ({why} at column {column})", "JSON ではありません（{column} 文字目）"),
    "core.not_object": ("a record is a JSON object, not {what}", "記録は JSON のオブジェクトでなければなりません"),
    "core.no_kind": ('no "kind"', "「kind」がありません"),
    "core.missing": ('"{key}" is missing', "「{key}」がありません"),
    "core.wrong": ('"{key}": {why}', "「{key}」の値が正しくありません（{why}）"),
    "core.second_header": (
        "a second header; one file holds one run",
        "見出しが二つあります。1つのファイルに記録できる実行は1つです",
    ),
    "core.early": ("a {kind} before the header; this is not a trace file", "見出しがありません。実行の記録ではないようです"),
    "core.late": ("a record after the footer", "終わりの記録の後に、まだ記録があります"),
    "core.order": ("iteration {number} where {expected} was expected", "反復 {expected} があるはずの所に反復 {number} があります"),
    "core.no_records": ("the file holds no records; this is not a trace file", "記録が1つもありません"),
    "core.newer": (
        "schema {schema} is newer than this program's {own}: update specviz to open it",
        "形式 {schema} はこのプログラムの {own} より新しいものです。specviz を更新してください",
    ),
}

EN = {**{key: english for key, (english, _) in PAIRS.items()}, "error.other": "{message}"}
JA = {**{key: japanese for key, (_, japanese) in PAIRS.items()}, "error.other": "実行できませんでした。英語の説明：{message}"}
