// The conditions of a rule: one row for each attribute.

/// What an attribute must be. Values are one in a line.
const CONDITIONS = {
  is: { title: "is one of", values: true },
  not: { title: "is none of", values: true },
  maybe: { title: "is absent, or one of", values: true },
  present: { title: "is present", values: false },
  absent: { title: "is absent", values: false },
};

/// A value of `when` as a row: which condition, and its values.
function conditionOf(value) {
  const all = [value].flat();
  const texts = all.filter((one) => one !== null).map(String);
  if (texts.length === 0) return { kind: "absent", texts };
  if (texts.length < all.length) return { kind: "maybe", texts };
  if (texts.length === 1 && texts[0] === "*") return { kind: "present", texts: [] };
  if (texts.every((text) => text.startsWith("!"))) return { kind: "not", texts: texts.map((text) => text.slice(1)) };
  return { kind: "is", texts };
}

/// The value of `when` for a row.
function valueOf(kind, texts) {
  if (kind === "absent") return null;
  if (kind === "present") return "*";
  const written = kind === "not" ? texts.map((text) => `!${text}`) : texts;
  const all = kind === "maybe" ? [...written, null] : written;
  return all.length === 1 ? all[0] : all;
}

/// In words, for a table: `is none of root, bot-*`.
function whenWords(value) {
  const { kind, texts } = conditionOf(value);
  if (kind === "is") return shown(texts.join(", "));
  const { title, values } = CONDITIONS[kind];
  return values ? `${title} ${shown(texts.join(", "))}` : title;
}

const whenForm = {
  make(when) {
    const rows = el("div", { class: "rows" });
    const add = (name, value) => rows.append(whenForm.row(name, value));
    for (const [name, value] of Object.entries(when)) add(name, value);
    const more = el("button", { type: "button", onclick: () => { add("", ""); rows.lastElementChild.querySelector("input").focus(); } }, "Add a condition");
    const node = el("fieldset", { class: "whole when", "data-fields": "when", tabindex: "-1" },
      el("legend", {}, "Applies when (to every request, if there is no condition)"), rows, more);
    return {
      node,
      isEmpty: () => rows.childElementCount === 0 && Object.keys(when).length === 0,
      read: () => Object.fromEntries([...rows.children].map((row) => row.read()).filter(([name]) => name !== "")),
    };
  },

  row(name, value) {
    const first = conditionOf(value);
    if (value === "") first.texts = [];
    const attribute = el("input", { value: name, placeholder: "plan, path, ip, header.x-team …", spellcheck: "false", autocomplete: "off", "aria-label": "Attribute" });
    const kind = el("select", { "aria-label": "Condition" }, Object.entries(CONDITIONS).map(([id, { title }]) => el("option", { value: id, selected: id === first.kind }, title)));
    const values = el("textarea", { rows: String(Math.max(1, first.texts.length)), spellcheck: "false", placeholder: "a value in each line: free, /api/*, 10.0.0.0/8", "aria-label": "Values, one in each line" }, first.texts.join("\n"));
    const fit = () => {
      values.hidden = !CONDITIONS[kind.value].values;
      values.rows = Math.max(1, values.value.split("\n").length);
    };
    const row = el("div", { class: "row" }, attribute, kind, values,
      el("button", { type: "button", class: "quiet square", "aria-label": "Remove this condition", onclick: () => { const form = row.parentElement; row.remove(); form.dispatchEvent(new Event("input", { bubbles: true })); } }, "×"));
    kind.addEventListener("change", fit);
    values.addEventListener("input", fit);
    fit();
    const texts = () => values.value.split("\n").map((text) => text.trim()).filter((text) => text !== "");
    const unchanged = () => kind.value === first.kind && texts().join("\n") === first.texts.join("\n");
    // A number stays a number if nobody has touched it.
    row.read = () => [attribute.value.trim(), value !== "" && unchanged() ? value : valueOf(kind.value, texts())];
    return row;
  },
};
