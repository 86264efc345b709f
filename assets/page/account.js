// Where the time of a run went, in plain tokens: what the mean iteration cost, beside what it added.

import { h, number, t } from "./dom.js";

/** check: the comparison with the target alone, with its account. Nothing where there is none. */
export function accountOf(check) {
  const { account } = check;
  if (!account) return [];
  const { drafted, accepted, added, drafting, verifying, other, cost } = account;
  const widest = Math.max(cost, added, 1);
  const row = (key, sum, parts) => [
    h("dt", { text: t(`account.${key}`) }),
    h("dd", {},
      h("div", { class: "sv-account-bar" },
        parts.map(([meaning, value]) => h("span", { style: `width:${(100 * value) / widest}%;background:var(--sv-${meaning})` })),
        h("i", { style: `left:${100 / widest}%` })),
      h("b", { text: number(sum) })),
  ];
  const key = (meaning, text) => h("li", {}, h("span", { class: "sv-account-key", style: `background:var(--sv-${meaning})` }), text);
  const words = Object.fromEntries(Object.entries(account).map(([name, value]) => [name, number(value ?? NaN)]));
  return [h("div", { class: "sv-account" },
    h("p", { class: "sv-small", text: t(drafted ? "account.sum" : "account.undrafted", words) }),
    h("dl", { "aria-hidden": "true" },
      row("cost", cost, [["draft", drafting], ["target", verifying], ["other", other]]),
      row("added", added, [["accepted", accepted], ["correction", added - accepted]])),
    h("ul", { class: "sv-small", "aria-hidden": "true" },
      key("draft", t("timeline.draft")), key("target", t("timeline.verify")), key("other", t("account.other")),
      key("accepted", t("legend.accepted")), key("correction", t("account.own")),
      h("li", {}, h("i"), t("account.unit"))),
    check.watched_speedup ? h("p", { class: "sv-small", text: t("account.timed", { watched: number(check.watched_speedup) }) }) : null,
    check.recorded ? h("p", { class: "sv-small", text: t("account.recorded") }) : null)];
}
