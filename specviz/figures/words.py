"""The texts of the figures, in every language of the page: one table, key -> language -> text.

``NAME.title`` and ``NAME.learn`` belong to the figure of that name: its title, and what one learns from it.
Placeholders in braces are the same in every language; a test holds that, and that no text is missing.
"""

from __future__ import annotations

from typing import Any

LANGUAGES = ("en", "ja")

WORDS: dict[str, dict[str, str]] = {
    # meanings and plain words
    "empty": {"en": "Nothing to show yet", "ja": "まだ表示するものがありません"},
    "accepted": {"en": "accepted", "ja": "採択"},
    "refused": {"en": "refused", "ja": "棄却"},
    "correction": {"en": "correction", "ja": "訂正"},
    "bonus": {"en": "bonus", "ja": "ボーナス"},
    "pending": {"en": "pending", "ja": "検証待ち"},
    "draft": {"en": "draft", "ja": "ドラフト"},
    "target": {"en": "target", "ja": "ターゲット"},
    "early": {"en": "early layers", "ja": "前半の層"},
    "late": {"en": "late layers", "ja": "後半の層"},
    "other": {"en": "other", "ja": "その他"},
    "oracle": {"en": "oracle", "ja": "オラクル"},
    "threshold": {"en": "threshold", "ja": "しきい値"},
    "speed": {"en": "speed", "ja": "速度"},
    "best": {"en": "best", "ja": "最良"},
    "drafted": {"en": "drafted", "ja": "ドラフト済み"},
    "accepted_share": {"en": "share accepted", "ja": "採択された割合"},
    "predicted": {"en": "predicted", "ja": "予測"},
    "measured": {"en": "measured", "ja": "実測"},
    "spread": {"en": "spread", "ja": "予測の幅"},
    "target_forwards": {"en": "target forwards", "ja": "ターゲットの順伝播"},
    "draft_forwards": {"en": "draft forwards", "ja": "ドラフトの順伝播"},
    # units and axes
    "unit.tokens_per_second": {"en": "Tokens per second", "ja": "毎秒トークン数"},
    "unit.speedup": {"en": "Speed-up over the target alone", "ja": "ターゲット単独に対する速度比"},
    "axis.iteration": {"en": "iteration", "ja": "反復"},
    "axis.tokens": {"en": "tokens", "ja": "トークン"},
    "axis.k": {"en": "k, drafted tokens in a row", "ja": "k：連続するドラフトトークン数"},
    "axis.forwards": {"en": "forwards", "ja": "順伝播の回数"},
    "axis.confidence": {"en": "confidence", "ja": "確信度"},
    "axis.drafted_token": {"en": "drafted tokens, in order", "ja": "ドラフトトークン（生成順）"},
    "axis.threshold": {"en": "confidence threshold", "ja": "確信度のしきい値"},
    "axis.exit_layer": {"en": "exit layer", "ja": "出口の層"},
    "axis.lookahead": {"en": "lookahead", "ja": "先読み"},
    "axis.ms": {"en": "milliseconds after prefill", "ja": "プリフィル後の時間（ミリ秒）"},
    # why drafting stopped
    "stop.length": {"en": "lookahead reached", "ja": "先読みに到達"},
    "stop.confidence": {"en": "confidence below threshold", "ja": "確信度がしきい値未満"},
    "stop.eos": {"en": "end of sequence", "ja": "文末トークン"},
    "stop.budget": {"en": "token limit", "ja": "トークン上限"},
    "stop.oracle": {"en": "oracle", "ja": "オラクル"},
    "stop.no-match": {"en": "no match in the text", "ja": "一致する文字列なし"},
    # policies and tasks
    "policy.autoregressive": {"en": "target alone", "ja": "ターゲット単独"},
    "policy.constant": {"en": "constant", "ja": "一定"},
    "policy.heuristic": {"en": "heuristic", "ja": "経験則"},
    "policy.dynamic": {"en": "dynamic", "ja": "動的"},
    "policy.oracle": {"en": "oracle", "ja": "オラクル"},
    "policy.prompt-lookup": {"en": "prompt lookup", "ja": "プロンプト参照"},
    "policy.early-exit": {"en": "early exit", "ja": "早期出口"},
    "policy.early-exit-heuristic": {"en": "early exit, heuristic", "ja": "早期出口（経験則）"},
    "policy.early-exit-dynamic": {"en": "early exit, dynamic", "ja": "早期出口（動的）"},
    "policy.early-exit-oracle": {"en": "early exit, oracle", "ja": "早期出口（オラクル）"},
    "policy.static-5": {"en": "static, 5", "ja": "固定 5"},
    "task.open-ended": {"en": "open-ended", "ja": "自由生成"},
    "task.summarisation": {"en": "summarisation", "ja": "要約"},
    "task.code": {"en": "code", "ja": "コード"},
    "task.japanese": {"en": "Japanese", "ja": "日本語"},
    # columns of the tables
    "column.iteration": {"en": "iteration", "ja": "反復"},
    "column.iterations": {"en": "iterations", "ja": "反復数"},
    "column.place": {"en": "place", "ja": "段"},
    "column.position": {"en": "position", "ja": "位置"},
    "column.outcome": {"en": "outcome", "ja": "結果"},
    "column.text": {"en": "text", "ja": "テキスト"},
    "column.confidence": {"en": "confidence", "ja": "確信度"},
    "column.target_probability": {"en": "target's probability", "ja": "ターゲットの確率"},
    "column.drafted": {"en": "drafted", "ja": "ドラフト数"},
    "column.accepted": {"en": "accepted", "ja": "採択数"},
    "column.oracle": {"en": "oracle lookahead", "ja": "オラクルの先読み"},
    "column.stop": {"en": "stopped by", "ja": "停止理由"},
    "column.task": {"en": "task", "ja": "タスク"},
    "column.prompt": {"en": "prompt", "ja": "プロンプト"},
    "column.mean": {"en": "mean", "ja": "平均"},
    "column.median": {"en": "median", "ja": "中央値"},
    "column.longest": {"en": "longest", "ja": "最長"},
    "column.origin": {"en": "origin", "ja": "出所"},
    "column.policy": {"en": "policy", "ja": "方策"},
    "column.target_forwards": {"en": "target forwards", "ja": "ターゲットの順伝播"},
    "column.draft_forwards": {"en": "draft forwards", "ja": "ドラフトの順伝播"},
    "column.threshold": {"en": "threshold", "ja": "しきい値"},
    "column.speed": {"en": "speed", "ja": "速度"},
    "column.measured_speed": {"en": "measured speed", "ja": "実測速度"},
    "column.waste": {"en": "refused ÷ drafted", "ja": "棄却 ÷ ドラフト"},
    "column.exit_layer": {"en": "exit layer", "ja": "出口の層"},
    "column.acceptance": {"en": "acceptance rate", "ja": "採択率"},
    "column.draft_cost": {"en": "draft step ÷ target forward", "ja": "ドラフト1回 ÷ ターゲット1回"},
    "column.speed_low": {"en": "speed, low", "ja": "速度（下限）"},
    "column.speed_high": {"en": "speed, high", "ja": "速度（上限）"},
    "column.lookahead": {"en": "lookahead", "ja": "先読み"},
    "column.measured": {"en": "measured", "ja": "実測"},
    "column.from": {"en": "from", "ja": "下限"},
    "column.to": {"en": "to", "ja": "上限"},
    "column.tokens": {"en": "tokens", "ja": "トークン数"},
    "column.rate": {"en": "share accepted", "ja": "採択された割合"},
    "column.low": {"en": "95 % low", "ja": "95 % 下限"},
    "column.high": {"en": "95 % high", "ja": "95 % 上限"},
    "column.number": {"en": "number", "ja": "番号"},
    "column.work": {"en": "work", "ja": "作業"},
    "column.start_ms": {"en": "start (ms)", "ja": "開始（ミリ秒）"},
    "column.ms": {"en": "duration (ms)", "ja": "長さ（ミリ秒）"},
    "column.layers": {"en": "layers", "ja": "層"},
    "column.computed": {"en": "computed", "ja": "計算時期"},
    "column.fate": {"en": "fate", "ja": "扱い"},
    # strip
    "strip.title": {"en": "What each iteration brought", "ja": "各反復の成果"},
    "strip.learn": {
        "en": "Each column is one iteration. Solid bricks are accepted drafts, the brick above them is the target's own token; up to there is what one target forward brought, on average the dashed line. Bricks above that were drafted in vain.",
        "ja": "1列が1回の反復です。塗りつぶしは採択されたドラフト、その上の1個はターゲット自身のトークンで、ここまでがターゲット1回の順伝播の成果です（破線は平均）。さらに上は無駄になったドラフトです。",
    },
    "strip.mean": {"en": "mean {mean}", "ja": "平均 {mean}"},
    # lookahead
    "lookahead.title": {"en": "Lookahead against the oracle", "ja": "先読みとオラクル"},
    "lookahead.learn": {
        "en": "The wide bar is what was drafted, the narrow one what was accepted, the diamond what the target would have accepted at most. A wide bar above the narrow one is waste; a diamond above the wide bar is a missed chance.",
        "ja": "太い棒はドラフト数、細い棒は採択数、ひし形はターゲットが最大で採択したはずの数です。太い棒のはみ出しは無駄、棒より上のひし形は逃した機会です。",
    },
    # oracle
    "oracle.title": {"en": "Oracle lookahead by task", "ja": "タスク別のオラクル先読み"},
    "oracle.learn": {
        "en": "Every mark above is one prompt: the best lookahead differs from task to task and from prompt to prompt, so no single fixed value fits. Below: in how many iterations would k drafts in a row all be right?",
        "ja": "上の点は1つのプロンプトです。最良の先読みはタスクごと、プロンプトごとに異なり、1つの固定値では合いません。下は、k個連続のドラフトがすべて正しい反復の割合です。",
    },
    "oracle.by_prompt": {"en": "Mean oracle lookahead of each prompt", "ja": "各プロンプトの平均オラクル先読み"},
    "oracle.at_least": {"en": "Iterations where k drafts in a row are right", "ja": "k個連続で正しい反復の割合"},
    "oracle.median": {"en": "median", "ja": "中央値"},
    # policies
    "policies.title": {"en": "Forwards that each policy needs", "ja": "各方策の順伝播回数"},
    "policies.learn": {
        "en": "Fewer target forwards: more was accepted per verification. Fewer draft forwards: less was drafted in vain. The oracle bounds both.",
        "ja": "ターゲットの順伝播が少ないほど検証1回あたりの採択が多く、ドラフトの順伝播が少ないほど無駄が少ないことを示します。オラクルが両方の限界です。",
    },
    "policies.measured": {"en": "This output", "ja": "この出力"},
    "policies.mbpp": {"en": "one MBPP example, RTX 4090", "ja": "MBPPの1例、RTX 4090"},
    "policies.published": {"en": "Published, other models: {source}", "ja": "公表値（別のモデル）：{source}"},
    # threshold_curve
    "threshold_curve.title": {"en": "Speed and waste by threshold", "ja": "しきい値と速度・無駄"},
    "threshold_curve.learn": {
        "en": "A low threshold drafts much in vain, a high one stops too early and verifies too often. Where the top is flat, the threshold needs no careful choice.",
        "ja": "しきい値が低いと無駄なドラフトが増え、高いと早く止まりすぎて検証が増えます。頂上が平らなら、細かく選ぶ必要はありません。",
    },
    "threshold_curve.waste": {"en": "Waste: refused ÷ drafted", "ja": "無駄：棄却 ÷ ドラフト"},
    "threshold_curve.best": {"en": "best at {threshold}", "ja": "最良 {threshold}"},
    "threshold_curve.now": {"en": "in use: {threshold}", "ja": "使用中 {threshold}"},
    # sweet_spot
    "sweet_spot.title": {"en": "The sweet spot of the exit layer", "ja": "出口の層の最適点"},
    "sweet_spot.learn": {
        "en": "A later exit is accepted more often, but every draft costs more. The speed-up is highest where one more layer no longer pays, which is not where acceptance is highest.",
        "ja": "出口の層が後ろほど採択率は上がりますが、ドラフト1回の費用も増えます。速度比が最大になるのは、層を1つ増やす利益が費用に見合わなくなる所で、採択率が最大の所ではありません。",
    },
    "sweet_spot.acceptance": {"en": "Acceptance rate: accepted ÷ drafted", "ja": "採択率：採択 ÷ ドラフト"},
    "sweet_spot.cost": {"en": "Cost of one draft step ÷ one target forward", "ja": "ドラフト1回 ÷ ターゲット1回の費用"},
    "sweet_spot.best": {"en": "best: {layer} ({speed}×)", "ja": "最良：{layer}（{speed}倍）"},
    "sweet_spot.alone": {"en": "target alone", "ja": "ターゲット単独"},
    "sweet_spot.chosen": {"en": "in use: {layer}", "ja": "使用中：{layer}"},
    # heat_map
    "heat_map.title": {"en": "Exit layer and lookahead", "ja": "出口の層と先読み"},
    "heat_map.learn": {
        "en": "An exit that is often right rewards a long lookahead, a poor one only a short one. The star is the best pair of exit layer and lookahead; dots are pairs measured by real runs, all others are predicted.",
        "ja": "よく当たる出口の層では長い先読みが、外れやすい層では短い先読みが得です。星は出口の層と先読みの最良の組、点は実際に測定した組で、残りは予測です。",
    },
    "heat_map.best": {
        "en": "best: exit layer {layer}, lookahead {lookahead} ({speed})",
        "ja": "最良：層 {layer}、先読み {lookahead}（{speed}）",
    },
    "heat_map.chosen": {
        "en": "in use: exit layer {layer}, lookahead {lookahead}",
        "ja": "使用中：層 {layer}、先読み {lookahead}",
    },
    # calibration
    "calibration.title": {"en": "Can confidence be believed?", "ja": "確信度は信頼できるか"},
    "calibration.learn": {
        "en": "On the diagonal, the drafter is right as often as it says. A flat line means that confidence tells nothing, and a threshold cannot help. Bars below show how many tokens each point rests on.",
        "ja": "対角線上なら、ドラフト側の確信度どおりに当たっています。平らな線なら確信度は何も語らず、しきい値は役に立ちません。下の棒は各点の元になったトークン数です。",
    },
    "calibration.rate": {"en": "Share of tokens that were accepted", "ja": "採択されたトークンの割合"},
    "calibration.counts": {"en": "Tokens", "ja": "トークン数"},
    "calibration.honest": {"en": "as often as it says", "ja": "確信度どおり"},
    # confidence
    "confidence.title": {"en": "Confidence of each drafted token", "ja": "各ドラフトトークンの確信度"},
    "confidence.learn": {
        "en": "Accepted tokens should lie above the threshold, refused ones below. The first token below the line ends a draft; it is still verified. Thin crosses stand behind a refused token: they were drafted on a wrong text and count for neither.",
        "ja": "採択されたトークンはしきい値より上、棄却されたものは下にあるのが理想です。線を下回った最初のトークンでドラフトは終わりますが、そのトークンも検証されます。細い×は棄却の後ろにあり、判定の対象になりません。",
    },
    "confidence.behind": {"en": "behind a refusal", "ja": "棄却の後ろ"},
    # timeline
    "timeline.title": {"en": "Drafting and verifying in time", "ja": "ドラフトと検証の時間"},
    "timeline.learn": {
        "en": "Wide drafting bars mean an expensive drafter or too long a lookahead. Each step of the curve is one verification, its height what it brought. Time outside both is known for the whole run only and spread evenly here.",
        "ja": "ドラフトの棒が長ければ、ドラフト側が重いか先読みが長すぎます。曲線の1段が検証1回で、高さがその成果です。どちらでもない時間は全体の合計だけが分かるため、均等に割り振っています。",
    },
    "timeline.lanes": {"en": "Who works", "ja": "作業の主体"},
    "timeline.tokens": {"en": "Tokens so far", "ja": "これまでのトークン数"},
    "timeline.run": {"en": "this run", "ja": "この実行"},
    "timeline.alone": {"en": "target alone", "ja": "ターゲット単独"},
    # kvq
    "kvq.title": {"en": "Which layers are computed when", "ja": "どの層をいつ計算するか"},
    "kvq.learn": {
        "en": "Each column is a position that was read, from the first layer up. Early layers are computed while drafting and reused by the verification; only what stands at a refused token is dropped. Layer passes of the whole run: {shared}; without the shared cache {separate}; dropped {thrown}.",
        "ja": "1列が読まれた位置で、下が最初の層です。前半の層はドラフト時に計算され、検証で再利用されます。捨てられるのは棄却された位置だけです。全体の層計算は {shared} 回、共有しなければ {separate} 回、捨てられたのは {thrown} 回です。",
    },
    "kvq.heading": {"en": "Layer (iterations numbered above)", "ja": "層（上の数字は反復）"},
    "kvq.positions": {"en": "token that was read", "ja": "読まれたトークン"},
    "kvq.early.kept": {"en": "drafted, reused", "ja": "ドラフト、再利用"},
    "kvq.early.thrown": {"en": "drafted, dropped", "ja": "ドラフト、破棄"},
    "kvq.late.kept": {"en": "verified, kept", "ja": "検証、保持"},
    "kvq.late.thrown": {"en": "verified, dropped", "ja": "検証、破棄"},
    # training
    "training_curve.title": {"en": "What the recipe costs and buys", "ja": "学習法の代償と利得"},
    "training_curve.learn": {
        "en": "Above: the loss on files that were never trained on; the distance of two curves is what the recipe costs. Below: how often each exit picks the token of the full model; after {layer} layers it does so at {share} of all positions. At first exits agree easily, because little is known yet.",
        "ja": "上は学習に使っていないファイルでの損失で、2本の曲線の差が学習法の代償です。下は各出口がモデル全体と同じトークンを選ぶ割合で、{layer} 層の後では {share} です。学習の初めは知識が少ないため、簡単に一致します。",
    },
    "training_curve.loss": {"en": "Held-out loss, nats a token", "ja": "検証損失（ナット／トークン）"},
    "training_curve.agreement": {
        "en": "{run}: agreement of each exit with the full model",
        "ja": "{run}：各出口とモデル全体の一致率",
    },
    "training_curve.exit": {"en": "exit layer {layer}", "ja": "出口の層 {layer}"},
    "training_schedules.title": {"en": "The two halves of the recipe", "ja": "学習法の2つの柱"},
    "training_schedules.learn": {
        "en": "Deep layers are skipped more and more during the training, so that the model does not rely on them. The loss is taken after early layers too, so that their state can already be read as a token.",
        "ja": "学習が進むほど深い層を飛ばす割合が増え、モデルは深い層に頼らなくなります。前半の層の後でも損失を取るので、その状態からトークンを読み取れるようになります。",
    },
    "training_schedules.dropout": {"en": "How often a layer is skipped", "ja": "層を飛ばす割合"},
    "training_schedules.weights": {"en": "Weight of each exit's loss", "ja": "各出口の損失の重み"},
    "training_schedules.dropout_at_half": {"en": "after half of the training", "ja": "学習の半ば"},
    "training_schedules.dropout_at_end": {"en": "at the end", "ja": "学習の終わり"},
    "training_schedules.exit_weight": {"en": "as trained", "ja": "実際の学習"},
    "training_schedules.published_weight": {"en": "as published", "ja": "論文の値"},
    "axis.training_tokens": {"en": "tokens of training text", "ja": "学習テキストのトークン数"},
    "axis.layer": {"en": "layer", "ja": "層"},
    # lens
    "lens.title": {"en": "What each layer would write", "ja": "各層が書くはずのトークン"},
    "lens.learn": {
        "en": "Each column is one position, from the first layer up; a cell is what an exit behind that layer would write, its colour how sure it is. Above the stepped line the answer no longer changes: the layers there only confirm it, and an early exit would be accepted. Half of all positions are settled at layer {agree}.",
        "ja": "1列が1つの位置で、下が最初の層です。各マスはその層の後で出口を取った場合のトークン、色はその確率です。階段状の線より上では答えが変わらず、残りの層は確認するだけで、早期出口のドラフトは採択されます。位置の半数は層 {agree} までに決まっています。",
    },
    "lens.heading": {"en": "Layer", "ja": "層"},
    "lens.after": {"en": "written behind this token", "ja": "このトークンの次に書くもの"},
    "lens.settled": {"en": "settled from here up", "ja": "ここから上は不変"},
    "lens.dot": {"en": "as the whole model", "ja": "モデル全体と同じ"},
    "lens.chosen": {"en": "exit layer in use: {layer}", "ja": "使用中の出口の層：{layer}"},
    "lens.written": {"en": "written by the model", "ja": "モデルの出力"},
    "lens.same": {"en": "as the whole model: {final}", "ja": "モデル全体と同じ：{final}"},
    "lens.other": {"en": "the whole model: {final}", "ja": "モデル全体：{final}"},
    "column.layer": {"en": "layer", "ja": "層"},
    "column.after": {"en": "behind", "ja": "直前のトークン"},
    "column.says": {"en": "says", "ja": "出口のトークン"},
    "column.probability": {"en": "probability", "ja": "確率"},
    "column.final": {"en": "as the whole model", "ja": "モデル全体と一致"},
    "lane.draft": {"en": "draft", "ja": "ドラフト"},
    "lane.target": {"en": "verify", "ja": "検証"},
    "lane.other": {"en": "other", "ja": "その他"},
}


def word(key: str, lang: str = "en", **values: Any) -> str:
    """A text in a language, with its placeholders filled. KeyError for an unknown key: that is a defect, not data."""
    texts = WORDS[key]
    text = texts.get(lang) or texts["en"]
    return text.format(**values) if values else text
