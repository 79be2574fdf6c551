// Who was denied, and a search.

/// What a mark at a violation means.
const MODES = {
  shadow: "In shadow mode: the request passed",
  annotate: "A soft limit: the request passed, marked for the upstream",
  quota: "One of several quotas: denied only if all of them were over",
};

function violationTable(caption, violations, nobody = "Nobody was denied.") {
  if (violations.length === 0) return el("p", { class: "note nothing" }, nobody);
  const text = (value) => (value === null || value === undefined ? el("span", { class: "note" }, "–") : foreign(value));
  return table(caption, [
    { title: "When", cell: (one) => moment(one.at) },
    { title: "Rule", cell: (one) => el("span", {}, foreign(one.rule), one.mode === "enforce" ? "" : el("span", { class: "chip", title: MODES[one.mode] ?? "" }, shown(one.mode)), one.blocked ? el("span", { class: "note" }, blockedBy(one.blocked)) : "") },
    { title: "Key", cell: (one) => keyLink(one.rule, one.key) },
    { title: "User", cell: (one) => text(one.user_id) },
    { title: "IP", cell: (one) => text(one.ip) },
    { title: "Endpoint", cell: (one) => text(one.endpoint) },
    { title: "Retry after", number: true, cell: (one) => (one.retry_after_ms === null ? (one.blocked ? "no end" : "never passes") : span(one.retry_after_ms)) },
    { title: "Denials", number: true, cell: (one) => count(one.count) },
  ], violations);
}

/// By whom a key is blocked, and until when.
function blockedBy({ by, until }) {
  return el("span", {}, shown(` blocked${by ? ` by ${by}` : ""} `), ...(until ? ["until ", moment(until)] : ["without an end"]));
}

const violations = {
  found: [],
  query: {},
  isSearching: false,

  async search(next) {
    if (!next && !violations.begin()) return;
    remember("violations", violations.query, "replaceState");
    const query = violations.query;
    try {
      const answer = await api.get("/v1/violations", { ...query, limit: 50, cursor: next });
      // The user has searched for something else since.
      if (violations.query !== query) return;
      say($("violation-error"), "");
      violations.found = next ? violations.found.concat(answer.violations) : answer.violations;
      violations.show(answer);
    } catch (error) {
      if (error instanceof Refused && error.status === 401) return signIn.show();
      if (violations.query === query) say($("violation-error"), error.message);
    } finally {
      if (violations.query === query) violations.isSearching = false;
    }
  },

  /// Takes the filter as it is. False if it is being searched for already: Enter in a field that was edited is a change and a submit.
  begin() {
    const query = Object.fromEntries(new FormData($("violation-filter")));
    if (violations.isSearching && JSON.stringify(query) === JSON.stringify(violations.query)) return false;
    violations.query = query;
    violations.isSearching = true;
    return true;
  },

  /// With the filter that the address names.
  open(query) {
    const { elements } = $("violation-filter");
    offerRules(elements.rule, (known.insight?.rules ?? []).map((rule) => rule.name));
    for (const field of elements) if (field.name && field.name in query) field.value = query[field.name];
    violations.search();
  },

  show({ next, dropped, source }) {
    const where = source === "postgres" ? "from Postgres" : "from this process's memory";
    const missing = dropped > 0 ? `; ${plural(dropped, "denial")} missing, could not be stored` : "";
    say($("found-note"), `${plural(violations.found.length, "record")} ${where}${missing}`);
    const filtered = Object.values(violations.query).some((value) => value !== "");
    $("found").replaceChildren(violations.found.length === 0 && filtered
      ? el("p", { class: "note nothing" }, "Nothing matches. Remove a filter, or look further back.")
      : violationTable("Violations", violations.found));
    $("found-more").hidden = !next;
    $("found-more").onclick = () => violations.search(next);
  },

  start() {
    const form = $("violation-filter");
    form.addEventListener("submit", (event) => { event.preventDefault(); violations.search(); });
    // After the reset itself.
    form.addEventListener("reset", () => setTimeout(() => violations.search()));
    form.addEventListener("change", () => violations.search());
  },
};

/// Keeps the list of rules to choose from up to date.
function offerRules(select, names) {
  if (select.dataset.now === names.join("\n")) return;
  select.dataset.now = names.join("\n");
  const chosen = select.value;
  select.replaceChildren(el("option", { value: "" }, "every rule"), ...names.map((name) => el("option", { value: name }, shown(name))));
  if (names.includes(chosen)) select.value = chosen;
}

