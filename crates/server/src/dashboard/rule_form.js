// A rule in a form. RULE_FIELDS is made from the schema of a rule, so every field is here: a one-line value has an
// input, conditions have a row each (when_form.js), and everything else is entered as JSON.

// Better labels than the names of fields, in the order of the form.
const LABELS = {
  name: { label: "Name", placeholder: "free-user" },
  scope: { label: "Scope", placeholder: "user" },
  key: { label: "One bucket for each", placeholder: "{user_id}" },
  algorithm: { label: "Algorithm" },
  limit: { label: "Limit", placeholder: "10/s" },
  burst: { label: "Burst", placeholder: "as the limit says" },
  timezone: { label: "Time zone, for calendar windows", placeholder: "UTC" },
  anchor_day: { label: "First day, for calendar windows", placeholder: "1" },
  hold: { label: "Hold, for concurrency", placeholder: "10min" },
  lease: { label: "Lease", placeholder: "auto, or a number" },
  mode: { label: "Mode" },
  headers: { label: "In limit headers" },
  on_store_failure: { label: "When the store is unreachable" },
  active: { label: "Active" },
  description: { label: "Description" },
};
const placeOf = ({ name }) => (Object.keys(LABELS).indexOf(name) + 1 || Infinity);
const INPUTS = RULE_FIELDS.filter(({ kind }) => kind !== "json").sort((one, other) => placeOf(one) - placeOf(other));
const AS_JSON = RULE_FIELDS.filter(({ kind, name }) => kind === "json" && name !== "when").map(({ name }) => name);

const ruleForm = {
  /// With the fields of a rule, or of none.
  open(rule) {
    const when = whenForm.make(rule?.when ?? {});
    const tried = el("p", { class: "preview whole", role: "status" });
    const body = el("div", { class: "fields two" },
      INPUTS.map((field) => ruleForm.input(field, rule)), when.node,
      el("label", { class: "whole" }, `As JSON: ${AS_JSON.join(", ")} `,
        el("textarea", { name: "more", rows: "4", spellcheck: "false", "data-fields": AS_JSON.join(" ") }, ruleForm.more(rule))),
      tried, rules.reasons());
    const sent = () => ({ ...ruleForm.read(body), ...(when.isEmpty() ? {} : { when: when.read() }) });
    previewLater(body, sent, tried);
    let existing = rule;
    let warned = null;
    ask({
      title: rule ? `Edit ${shown(rule.name)}` : "New rule", body, ok: rule ? "Save" : "Create",
      act: async () => {
        const changed = sent();
        const more = rules.change(body);
        const saved = existing
          ? await api.put(`/v1/rules/${encodeURIComponent(existing.name)}`, changed, more)
          : await api.post("/v1/rules", changed, more);
        existing = changed;
        announce(`Rule ${shown(changed.name)} was saved`);
        await rules.load();
        // What is probably a mistake is shown once at its field; the rule is saved all the same.
        const warning = saved.warnings?.[0];
        if (warning && warned !== warning.problem) {
          warned = warning.problem;
          throw Object.assign(new Error(`The rule was saved. Warning: ${warning.problem}`), { field: warning.field });
        }
      },
    });
  },

  input({ name, kind, choices, required, description, default: usual }, rule) {
    const { label = name.replaceAll("_", " "), placeholder } = LABELS[name] ?? {};
    const value = rule?.[name] ?? usual;
    const title = description ?? undefined;
    if (kind === "switch") {
      return el("label", { class: "check", title }, el("input", { type: "checkbox", name, checked: value === true }), ` ${label}`);
    }
    if (kind === "choice") {
      const option = (choice) => el("option", { value: choice, selected: value === choice }, choice.replaceAll("_", " "));
      return el("label", { title }, `${label} `, el("select", { name }, choices.map(option)));
    }
    return el("label", { title, class: name === "description" && "whole" }, `${label} `, el("input", {
      name, value: value ?? "", placeholder, required, readonly: name === "name" && Boolean(rule), spellcheck: "false", autocomplete: "off",
    }));
  },

  more(rule) {
    const given = Object.entries(rule ?? {}).filter(([name]) => AS_JSON.includes(name));
    return JSON.stringify(Object.fromEntries(given), null, 2);
  },

  read(body) {
    const sent = {};
    for (const { name, kind } of INPUTS) {
      const field = body.querySelector(`[name="${name}"]`);
      const text = field.value.trim();
      if (kind === "switch") sent[name] = field.checked;
      else if (text !== "") sent[name] = kind === "scalar" && /^\d+$/.test(text) ? Number(text) : text;
    }
    const text = body.querySelector("[name=more]").value.trim();
    if (text === "") return sent;
    let more;
    try {
      more = JSON.parse(text);
    } catch (error) {
      throw Object.assign(new Error(`this is not JSON: ${error.message}`), { field: "more" });
    }
    return { ...more, ...sent };
  },
};


/// Says what a rule would have denied of the requests of the last hours.
async function preview(rule, place) {
  const { quota: _, ...spec } = rule;
  const answer = await api.post("/v1/preview", spec).catch(() => null);
  // While a field is wrong there is nothing to try; saving explains what is wrong.
  say(place, answer ? `${opening(shown(answer.sentence))}.` : "");
}

/// Asks again shortly after each change of the form.
function previewLater(body, read, place) {
  const PAUSE_MS = 300;
  let timer;
  const later = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      try {
        preview(read(), place);
      } catch {
        say(place, "");
      }
    }, PAUSE_MS);
  };
  body.addEventListener("input", later);
  later();
}
