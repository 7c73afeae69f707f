// The tables of the tabs Usage and Events.

function grid(titles, rows, isNumber, onclick) {
  const row = (tag, cells, place) => make("tr", place == null ? {} : { onclick: () => onclick?.(place), class: onclick ? "dk-link" : null },
    ...cells.map((cell, i) => make(tag, { class: isNumber[i] ? "dk-n" : null, title: String(cell) }, cell === "" ? "–" : String(cell))));
  return make("table", { class: "dk-grid" }, make("thead", {}, row("th", titles)), make("tbody", {}, ...rows.map((cells, place) => row("td", cells, place))));
}

// The attempts of the task that is selected; a click on one leads to its log.
function usageOfTask(task, onselect) {
  const attempts = task.attempts ?? [];
  if (!attempts.length) return [];
  const table = grid(["try", "ended", "time", "peak", "asked for", "where"], attempts, [1, 0, 1, 1, 0, 0], (place) => onselect(Number(attempts[place][0])));
  return [make("div", { class: "dk-facts" }, make("b", {}, task.name), ` ${plural(attempts.length, "attempt")}`), table];
}

function usageOfGroups(usage) {
  const cells = usage.rows.map(([title, measured, size, ...rest]) => [title, measured < size ? `${grouped(measured)} of ${grouped(size)}` : grouped(size), ...rest]);
  const titles = ["group", "measured", "median", "longest", "peak", "asked for", "cores", "waited"];
  const table = cells.length ? grid(titles, cells, [0, 1, 1, 1, 1, 0, 1, 1]) : make("div", { class: "dk-none" }, "Nothing is measured yet.");
  const more = usage.more ? [make("div", { class: "dk-none" }, `and ${plural(usage.more, "more group")}`)] : [];
  return [make("div", { class: "dk-facts" }, "What completed tasks took, by group: run.usage() has it all"), table, ...more];
}

const RUN_GLYPHS = { running: "◐", pending: "·", ready: "↻" };

function eventRow([at, state, subject, task, words], byValue, onselect) {
  const when = new Date(1000 * at), glyph = RUN_GLYPHS[state] ?? byValue[state]?.glyph ?? "";
  const red = state === "failed" || state === "upstream_failed";
  const attributes = { class: `dk-event${red ? " dk-red" : ""}${task ? " dk-link" : ""}`, title: when.toLocaleString() };
  if (task) attributes.onclick = () => onselect(task, "error");
  return make("div", attributes, make("span", { class: "dk-soft" }, when.toLocaleTimeString("en-GB")), make("span", { class: "dk-state" }, glyph),
    make("span", {}, subject ? make("b", {}, subject) : "", subject ? ` ${words}` : words));
}
