// Every version of the rules: who made it, why, what it did, and rollback.

/// What was done to the rules, as people say it.
const ACTIONS = { apply: "applied", create: "added", put: "changed", delete: "removed", rollback: "rolled back" };

const history = {
  versions: [],

  async load(before) {
    const { versions } = await api.get("/v1/rules/history", { limit: 20, before });
    history.versions = before ? history.versions.concat(versions) : versions;
    const current = known.rules.version;
    $("versions").replaceChildren(...history.versions.map((version) => history.entry(version, current)));
    const oldest = history.versions.at(-1)?.version ?? 1;
    $("versions-more").hidden = oldest <= 1;
    $("versions-more").onclick = () => history.load(oldest);
  },

  entry(version, current) {
    const isCurrent = version.version === current;
    return el("li", {},
      el("div", { class: "head" },
        el("b", {}, `Version ${count(version.version)}`), isCurrent ? el("span", { class: "chip" }, "in force") : "",
        el("span", { class: "note" }, moment(version.changed_at), ` ${ACTIONS[version.action] ?? shown(version.action)} by `, foreign(version.changed_by)),
        isCurrent ? "" : el("button", { type: "button", onclick: () => history.rollback(version) }, "Roll back to this…")),
      version.message ? el("p", {}, shown(version.message)) : "",
      version.changes.length > 0 ? el("ul", { class: "changes" }, version.changes.map(history.change)) : "");
  },

  change({ name, before, after }) {
    const rule = el("b", {}, shown(name));
    if (!before) return el("li", {}, rule, " was added");
    if (!after) return el("li", {}, rule, " was removed");
    const fields = [...new Set([...Object.keys(before), ...Object.keys(after)])]
      .filter((field) => JSON.stringify(before[field]) !== JSON.stringify(after[field]))
      .filter((field) => !["version", "updated_at", "created_at"].includes(field));
    const said = (value) => (value === null || value === undefined ? "nothing" : shown(typeof value === "string" ? value : JSON.stringify(value)));
    return el("li", {}, rule, fields.length > 0 ? ": " : " was touched", fields.map((field, index) =>
      el("span", {}, index > 0 ? "; " : "", `${shown(field)} `, el("del", {}, said(before[field])), " → ", el("ins", {}, said(after[field])))));
  },

  rollback(version) {
    const body = el("div", { class: "fields" },
      el("p", {}, `This restores the rules of version ${count(version.version)} as a new version. The history is kept.`), rules.reasons());
    ask({
      title: `Roll back to version ${count(version.version)}?`, body, ok: "Roll back", danger: true,
      act: async () => {
        await api.post("/v1/rules/rollback", { version: version.version }, rules.change(body));
        announce(`Rolled back to version ${version.version}`);
        await rules.load();
      },
    });
  },
};

