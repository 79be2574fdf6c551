// Builds and changes the page. Data becomes text, never markup.

const $ = (id) => document.getElementById(id);

function el(name, properties = {}, ...children) {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

function svg(name, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function icon(name) {
  return svg("svg", { class: `icon ${name}`, "aria-hidden": "true" }, svg("use", { href: `#i-${name}` }));
}

/// Changes a text only if it differs, so that screen readers and selections are not disturbed.
function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/// Keeps one part for each item under its key, in order. A part is `{ node, update(item) }`.
function each(parent, items, keyOf, make) {
  const old = parent.parts ?? new Map();
  if (!parent.parts) parent.replaceChildren();
  const parts = new Map();
  let place = parent.firstElementChild;
  for (const item of items) {
    let key = String(keyOf(item));
    while (parts.has(key)) key += "'";
    const part = old.get(key) ?? make(item);
    old.delete(key);
    part.update?.(item);
    parts.set(key, part);
    if (part.node === place) place = place.nextElementSibling;
    else parent.insertBefore(part.node, place);
  }
  for (const part of old.values()) part.node.remove();
  parent.parts = parts;
}

/// Replaces old parts by new ones, unless they are the same. Keyboard focus stays where it is.
function renew(place, what, make) {
  const now = JSON.stringify(what);
  if (place.now === now) return;
  place.now = now;
  const buttons = () => [...place.querySelectorAll("button")];
  const focused = buttons().indexOf(document.activeElement);
  const key = document.activeElement?.dataset.key;
  place.replaceChildren(...[make()].flat());
  if (focused >= 0) (buttons().find((button) => button.dataset.key === key) ?? buttons()[focused])?.focus({ preventScroll: true });
}

/// A table whose cells are named, so that a phone can show each row as a card.
function table(caption, columns, rows) {
  const head = columns.map(({ title, number }) =>
    el("th", { scope: "col", role: "columnheader", class: number && "number" }, title));
  const body = rows.map((row) => el("tr", { role: "row" }, columns.map(({ title, number, cell }) =>
    el("td", { role: "cell", "data-title": title, class: number && "number" }, cell(row)))));
  return el("table", { role: "table", "aria-label": caption },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, head)), el("tbody", { role: "rowgroup" }, body));
}

/// A text from a client: characters that are invisible or change the text direction are escaped.
function shown(text) {
  return String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Co}\p{Cn}]/gu,
    (c) => `\\u{${c.codePointAt(0).toString(16)}}`);
}

/// The same as an element, truncated by the style if it is long.
function foreign(text, name = "span") {
  const safe = shown(text);
  return el(name, { class: "foreign", dir: "ltr", title: safe.length > 24 ? safe : undefined }, safe);
}

/// What somebody wrote as a sentence: it is never cut off.
function words(text) {
  return el("span", { class: "words", dir: "ltr" }, shown(text));
}

/// Announces changes of state to screen readers.
function announce(text) {
  say($("announce"), text);
}

/// Asks for a confirmation, or for what a form needs. `act` does it; an error is shown and the dialog stays open.
function ask({ title, body = [], ok, danger = false, act }) {
  const dialog = $("ask");
  say($("ask-title"), title);
  $("ask-body").replaceChildren(...[body].flat());
  say($("ask-ok"), ok);
  // Nothing to cancel where nothing is done.
  $("ask-cancel").hidden = ok === "Close";
  $("ask-ok").className = danger ? "danger" : "primary";
  say($("ask-error"), "");
  $("ask-form").onsubmit = async (event) => {
    event.preventDefault();
    $("ask-ok").disabled = true;
    say($("ask-error"), "");
    complain($("ask-body"), null);
    try {
      await act();
      dialog.close();
    } catch (error) {
      if (!complain($("ask-body"), error)) say($("ask-error"), error.message);
    } finally {
      $("ask-ok").disabled = false;
    }
  };
  $("ask-cancel").onclick = () => dialog.close();
  dialog.showModal();
}

/// Shows an error at the field that it names; returns whether there is one. Null removes old errors.
function complain(form, error) {
  for (const field of form.querySelectorAll("[aria-invalid]")) {
    field.removeAttribute("aria-invalid");
    field.removeAttribute("aria-errormessage");
  }
  for (const old of form.querySelectorAll(".error.of-field")) old.remove();
  const name = error?.field?.split(/[.[]/)[0];
  const field = name && (form.querySelector(`[name="${CSS.escape(name)}"]`) ?? form.querySelector(`[data-fields~="${CSS.escape(name)}"]`));
  if (!field) return false;
  const id = `error-of-${name}`;
  field.setAttribute("aria-invalid", "true");
  field.setAttribute("aria-errormessage", id);
  (field.closest("label") ?? field).after(el("p", { class: "error of-field", id, role: "alert" }, error.message.replace(`${error.field}: `, "")));
  field.focus();
  return true;
}

