"""Japanese texts of the views behind Watch, of files and of their errors."""

TEXTS = {
    "explore.empty": (
        "「この出力を一度だけ測る」を押してください。数秒かかります。その後、反復ごとのオラクルとの比"
        "較、各規則に必要な計算の回数、しきい値による速さと無駄がここに表示されます。"
    ),
    "layers.empty": (
        "「すべての層をのぞく」を押してください。数秒かかります。その後、各層が書くはずのトークン、最"
        "適な出口の層、どの層がいつ計算されるかがここに表示されます。"
    ),
    "stage.download": "{name} を取得しています（初回のみ）",
    "stage.convert": "{name} を変換しています（初回のみ）",
    "stage.load": "{name} を読み込んでいます",
    "stage.wait": "別の実行がこのモデルを取得中です。お待ちください",
    "stage.other": "{name}",
    "task.code.1": "コード 1",
    "task.code.2": "コード 2",
    "task.code.3": "コード 3",
    "task.code.4": "コード 4",
    "view.explore": "先読みとオラクル",
    "view.layers": "出口の層",
    "view.race": "競走",
    "view.published": "公表値と実測値",
    "view.walk": "しくみ",
    "guide.label": "見どころ",
    "try.label": "試してみよう：",
    "state.simulated": "計算で求めた実行",
    "verdict.unfinished": "このファイルの実行は途中までです。記録されている分を表示しています。",
    "metric.predicted": "予測される高速化",
    "metric.predicted.note": "毎秒 {speed} トークン（この装置で測ったコストから）",
    "policy.constant": "一定",
    "policy.heuristic": "経験則",
    "policy.dynamic": "動的",
    "policy.oracle": "オラクル",
    "study.about": "モデル：{models}。プロンプト：「{prompt}」。新しいトークンは最大 {limit} 個。変更は「見る」の画面で行います。",
    "study.ready": "測定しました。下の図はすぐに応答します。",
    "study.measuring": "出力を一度読み、各部分の時間を測っています…",
    "explore.measure": "この出力を一度だけ測る",
    "explore.policy": "予想をいつ止めるか",
    "explore.play": "この実行を見る",
    "explore.run": "実際に実行する",
    "explore.title": "どこまで先を予想すべきか",
    "explore.text": (
        "予想が少なすぎるとターゲットの計算を節約できず、多すぎると予想が無駄になります。オラクルはドラフトが外れ"
        "る場所をあらかじめ知っていて、最良の規則なら何が得られるかを示します。1つの出力を一度測れば、どの規則が"
        "何をしたはずかが正確に分かります。スライダーを動かしてください。モデルは動きません。"
    ),
    "explore.try.greedy": "つねに20トークン予想し、どれだけ無駄になるかを見る。",
    "explore.try.careful": "確信度が 80 % を下回ったらすぐ止める。",
    "explore.try.oracle": "オラクル：棄却される予想は1つもありません。",
    "layers.measure": "すべての層をのぞく",
    "layers.run": "この層で実行",
    "layers.twin": "通常学習のモデルと比べる",
    "layers.best": "ここでの最良の出口は第 {layer} 層です。予想の採択率は {rate} ですが、予測される速さは {speed} 倍です。",
    "layers.title": "モデルが自分で予想する",
    "layers.text": (
        "モデルは最後の層よりずっと前に次のトークンを決めていることがよくあります。早期出口では最初の層が予想し、"
        "残りの層が確かめます。第二のモデルは不要で、最初の層の計算は再利用されます。答えがどこで定まるか、速さが"
        "どこで最大になるかを見てください。出口が深いほどよく当たりますが、予想1つの費用も増えます。"
    ),
    "layers.try.first": "最初の層だけで予想する。安いが、よく外れます。",
    "layers.try.late": "終わりの2層手前で予想する。ほぼ当たるが、ほとんど安くなりません。",
    "layers.try.best": "最適な層に合わせる。",
    "fig.compare.title": "早期出口の学習をしたモデルとしないモデル",
    "fig.compare.note": "LayerSkip の方法で学習したモデルと、しなかったモデルの、出口の層ごとの採択率です。",
    "race.start": "競走開始",
    "race.again": "もう一度再生",
    "race.title": "同じ文章、違う速さ",
    "race.text": "どの方式も同じターゲットの文章を書くので、最後の文はすべて同じです。違うのは時間だけです。互いに邪魔をしないよう1つずつ実行し、その後で同じ時計に合わせて再生します。",
    "race.try.policies": "先読みの規則をすべて比べる。",
    "race.try.drafters": "ドラフトモデル、自分の層、文中からの写しを比べる。",
    "race.choose": "2 から {most} の方式を選んでください。",
    "race.running": "{all} のうち {n} 番目を実行中：{method}。",
    "race.done": "すべて実行しました。再生しています。",
    "race.tokens": "{n} トークン",
    "race.clock": "{time} / {all} 秒",
    "race.passes": "ターゲットの計算回数",
    "race.same": "{all} の方式すべてが、まったく同じ文章を書きました。",
    "race.differs": "{all} の方式のうち {same} が同じ文章を書きました。他は、ほぼ同点の箇所で丸め誤差により分かれました。",
    "fig.race.title": "毎秒トークン数",
    "fig.race.note": "かっこ内はターゲット単独との比です。",
    "published.title": "公表された値と、この装置の値",
    "published.text": "高速化はモデル、課題、装置によって変わるため、別の装置の数値を混ぜて示すことはしません。上はこの訪問での実測値、下は出典に公表されたままの表です。モデルが収まる行はここで実行できます。",
    "published.own": "この訪問での実測",
    "published.own.note": "「見る」と「競走」で実行したものが加わります。",
    "published.none": "まだありません。「見る」か「競走」で実行してください。",
    "published.models": "モデル",
    "published.speedup": "高速化",
    "published.hardware": "装置",
    "published.rate": "{rate}（{drafted} のうち {accepted}）",
    "published.here": "この装置（{device}）",
    "published.source": "出典：{source}。装置：{hardware}。",
    "published.target": "ターゲット",
    "published.draft": "ドラフト",
    "published.task": "課題",
    "published.heuristic": "経験則（倍）",
    "published.dynamic": "動的（倍）",
    "published.model": "モデル",
    "published.exit_layer": "出口の層",
    "published.self_ms": "自己投機 ms/トークン",
    "published.plain_ms": "通常 ms/トークン",
    "published.two_model": "二つのモデル",
    "published.milliseconds": "ms",
    "published.run": "ここで",
    "published.run_row": "実行する",
    "published.table": "表",
    "published.too_large": "{needed} GB 必要ですが、この装置で使えるのは {here} GB です",
    "published.gated": "トークンが必要です。Hub で {name} の利用条件に同意してください",
    "published.dynamic.note": "通常の生成に対する高速化。経験則と動的は、先読みの長さの決め方です。",
    "published.layerskip.note": "同じモデルでも通常の値が行によって4分の1ほど違うため、基準はつねに並べて測る必要があります。",
    "published.sweep.note": "採択が最も多い層が最適とは限りません。層が増えるほど予想1つの費用も増えます。",
    "walk.label": "手順",
    "walk.back": "戻る",
    "walk.next": "次へ",
    "walk.step": "{all} のうち {n}",
    "walk.alone.title": "1回の計算で1トークン",
    "walk.alone.text": "ターゲット単独では、1回の計算で1トークンしか書けません。この実行の {tokens} トークンには {tokens} 回の計算が必要で、そのたびにモデルの重みすべてを読み込みます。",
    "walk.draft.title": "小さなドラフトが先を予想する",
    "walk.draft.text": "そこで、安い方法で続きを予想します。小さなモデル、ターゲット自身の最初の層、あるいは文章の前の部分です。ここでは {count} トークンを予想しました。まだどれも確定していません。",
    "walk.verify.title": "1回の計算ですべて確かめる",
    "walk.verify.text": (
        "ターゲットは {count} 個の予想を1回の計算で読み、それぞれの場所で自分なら何を書いたかを知ります"
        "。重みを読み込むのは1回だけなので、数トークンを確かめる時間は1トークンを書く時間とあまり変わりません。"
    ),
    "walk.refuse.title": "最初の外れで終わる",
    "walk.refuse.text": (
        "一致している間は予想が採択されます。ここでドラフトは「{wrong}」、ターゲットは「{right}」を選"
        "びました。この予想とその後はすべて消され、ターゲット自身のトークンが入ります。だから文章はつねにターゲッ"
        "トのものです。"
    ),
    "walk.bonus.title": "全部当たれば1つおまけ",
    "walk.bonus.text": "{fullcount} 個の予想がすべて当たると、同じ計算から次の「{bonus}」も得られます。これがボーナスです。最良の場合、1回の計算で予想の数より1つ多く進みます。",
    "walk.rate.title": "どれだけ得をするか",
    "walk.rate.text": (
        "この実行では {drafted} 個の予想のうち {accepted} 個（{rate}）が採択されまし"
        "た。ターゲットの計算1回あたり平均 {mean} トークンが得られ、{tokens} トークンを {pa"
        "sses} 回で書きました。"
    ),
    "walk.speed.title": "いつ速くなるか",
    "walk.speed.text": "予想はただではありません。大切なのは予想1つの費用とターゲットの計算1回の費用の比です。安いドラフトはよく外れてもかまいませんが、高いドラフトはほとんど当たる必要があります。",
    "walk.stop.title": "予想をいつ止めるか",
    "walk.stop.text": (
        "この実行では {wasted} 個の予想が捨てられました。自分の迷いに気づくドラフトは早めに止められます"
        "。これが動的な先読みです。ターゲット自身の最初の層が予想すれば、第二のモデルは要りません。これが早期出口"
        "です。どちらにも専用の画面があります。"
    ),
    "formula.rate": "採択率 α = 採択 ÷ 予想",
    "formula.length": "計算1回あたりのトークン = トークン ÷ 回数",
    "formula.expected": "計算1回あたりの期待トークン数 = (1 − α^(k+1)) ÷ (1 − α)",
    "formula.expected.note": "1回あたり k = {k} 個の予想がどれも同じ確率で採択されるとした場合です。実際には易しい箇所と難しい箇所が固まって現れるため、値は異なります。",
    "formula.cost": "費用の比 c = ドラフト1回 ÷ ターゲット1回",
    "formula.speed": "高速化 = 期待トークン数 ÷ (k · c + 1)",
    "formula.speed.note": "複数トークンの検証が1トークンと同じ時間で済むとした教科書の値です。実測値は「見る」の画面にあります。",
    "formula.waste": "無駄な予想 = 予想 − 採択",
    "files.menu": "保存・共有・開く",
    "files.trace": "実行を保存（JSONL）",
    "files.iterations": "反復の表を保存（CSV）",
    "files.tokens": "トークンの表を保存（CSV）",
    "files.link": "この画面へのリンクをコピー",
    "files.open": "保存した実行を開く…",
    "files.copied": "リンクをコピーしました。",
    "files.recorded": "記録された実行",
    "error.no_draft": "この組にはドラフトモデルがありません。別の組を選んでください。",
    "error.racers": "1 から {limit} の方式を選んでください。",
    "error.file": "このファイルは実行の記録として読めません：{why}。",
    "error.file_size": "このファイルは {limit} MB を超えています。",
    "error.file_records": "この実行の反復は {limit} を超えています。",
}
