// The live view of a run. It draws what the kernel publishes and asks with messages; it decides nothing about the run.
// Every text of a user becomes a text node, never markup.

const RESULT_STYLE = `body { font: 13px system-ui, sans-serif; background: #fff; color: #1f2933; }
  table { border-collapse: collapse; border: 0; font-size: 12px; } th, td { border: 0; padding: 3px 8px; text-align: right; }
  thead { border-bottom: 1px solid #d9dee4; } tbody tr:nth-child(odd) { background: #f7f9fb; }`;
const ROW_PX = 24, ROWS = 60, HERE_MS = 25_000, SILENT_MS = 4_000;

// What was chosen in a view that is drawn anew (a front end does so when the still picture beside it changes).
const kept = new Map();

class View {
  constructor(model, el) {
    this.model = model;
    this.words = model.get("words");
    this.states = this.words.states.map(([value, words, glyph]) => ({ value, words, glyph }));
    this.byValue = Object.fromEntries(this.states.map((state) => [state.value, state]));
    const before = kept.get(model.get("head").id), chosen = before?.query ?? model.get("chosen");
    this.query = { group: chosen.group ?? null, states: chosen.states ?? [], text: chosen.text ?? "", calm: chosen.calm ?? false, offset: 0 };
    this.task = before?.task ?? model.get("task").name ?? null;
    this.tab = before?.tab ?? "tasks";
    this.follows = true;
    this.asked = 0;
    this.view = Math.random().toString(36).slice(2);
    this.told = { head: performance.now(), page: performance.now() };
    this.build(el);
    this.listen();
    this.all();
    this.ask({ ask: "here" });
    this.page();
  }

  // --- asking

  ask(question) {
    this.asked = Math.max(this.asked, this.model.get("answered")) + 1;
    this.askedAt = performance.now();
    this.model.send({ ...question, view: this.view, n: this.asked });
  }

  page() {
    const first = Math.floor(this.rows.scrollTop / ROW_PX);
    this.query.offset = Math.max(0, first - 15);
    this.ask({ ask: "page", ...this.query, limit: ROWS });
  }

  select(name, tab, attempt) {
    this.task = name;
    this.follows = true;
    this.ask({ ask: "task", name, attempt });
    if (tab) this.show(tab);
    else if (this.tab === "result") this.askResult();
    this.drawRows();
    this.drawTask();
    this.drawButtons();
  }

  group(key) {
    this.query.group = this.query.group === key ? null : key;
    this.rows.scrollTop = 0;
    if (this.tab !== "tasks") this.show("tasks");
    const box = this.model.get("scene").boxes.find((one) => one.key === this.query.group);
    if (box && box.tasks === 1 && !box.fold) this.select(box.first);
    this.page();
    this.drawChosen();
    this.drawButtons();
  }

  // --- the skeleton

  build(el) {
    this.head = make("div", { class: "dk-head" },
      (this.name = make("span", { class: "dk-name" })), (this.id = make("span", { class: "dk-id" })),
      (this.status = make("span", { class: "dk-status", role: "status" })), (this.figures = make("span", { class: "dk-figures" })));
    this.bar = make("div", { class: "dk-bar", role: "progressbar", "aria-label": "tasks that have ended" });
    this.segments = this.states.map((state) => {
      const part = make("div", { style: `background:var(--dk-${state.value});width:0` });
      this.bar.append(part);
      return part;
    });
    this.chips = this.states.map((state) => {
      const label = make("span");
      const chip = make("button", { class: "dk-chip", type: "button", "aria-pressed": "false", title: `Only tasks that are ${state.words}`,
        onclick: () => this.toggle(state.value) }, make("i", { style: `background:var(--dk-${state.value})` }), label);
      return { chip, label };
    });
    this.legend = make("div", { class: "dk-legend" }, ...this.chips.map((one) => one.chip));
    this.trouble = make("div", { class: "dk-trouble", role: "alert", hidden: true });
    this.problem = make("div", { class: "dk-problem", role: "alert", hidden: true });
    this.graph = new Graph(this.model.get("scene"), this.states, this.words, (key) => this.group(key));
    this.root = make("div", { class: "dagkit-view" }, this.head, this.bar, this.legend, this.trouble, this.problem,
      make("div", { class: "dk-body" }, this.graph.node, this.buildSide()), this.buildAsk(), this.buildFoot());
    this.root.append(make("style", {}, `.dagkit-still-${this.model.get("key")} { display: none; }`));
    this.root.classList.toggle("dk-wide", this.graph.isWide);
    el.append(this.root);
  }

  buildSide() {
    const tab = (name, words) => make("button", { type: "button", role: "tab", "data-tab": name, onclick: () => this.show(name) }, words);
    this.tabs = make("div", { class: "dk-tabs", role: "tablist" }, tab("tasks", "Tasks"), tab("log", "Log"), tab("error", "Error"), tab("result", "Result"),
      tab("usage", "Usage"), tab("events", "Events"), (this.what = make("span", { class: "dk-what" })));
    this.find = make("input", { type: "search", placeholder: "find by name or error; fit* begins so", "aria-label": "find tasks",
      oninput: () => this.later("find", 200, () => { this.query.text = this.find.value; this.rows.scrollTop = 0; this.page(); }) });
    this.find.value = this.query.text;
    this.scope = make("button", { class: "dk-scope", type: "button", title: "Show the tasks of every group again", onclick: () => this.group(this.query.group) });
    this.total = make("span");
    this.order = make("button", { class: "dk-order", type: "button", onclick: () => this.reorder() });
    this.titles = make("div", { class: "dk-row dk-titles" }, this.order, make("span", {}, "state"),
      ...["try", "time", "peak"].map((word) => make("span", { class: "dk-n" }, word)));
    this.spacer = make("div");
    this.rows = make("div", { class: "dk-rows", tabindex: "0", role: "listbox", "aria-label": "tasks",
      onscroll: () => this.later("scroll", 60, () => this.page()), onkeydown: (event) => this.key(event) }, this.spacer);
    this.short = make("div", { class: "dk-short", hidden: true });
    this.logText = make("pre", { class: "dk-log", tabindex: "0", onscroll: () => this.logScrolled() });
    this.toEnd = make("button", { class: "dk-end", type: "button", hidden: true, onclick: () => { this.follows = true; this.drawLog(); } }, "↓ follow");
    this.errorText = make("pre", { class: "dk-error", tabindex: "0" });
    this.logFacts = make("div", { class: "dk-facts" });
    this.errorFacts = make("div", { class: "dk-facts" });
    this.panes = {
      tasks: make("div", { class: "dk-pane" }, make("div", { class: "dk-find" }, this.find, this.scope, this.total), this.titles, this.rows, this.short),
      log: make("div", { class: "dk-pane", hidden: true }, this.logFacts, (this.whichLog = make("div", { class: "dk-which", hidden: true })), this.logText, this.toEnd),
      error: make("div", { class: "dk-pane", hidden: true }, this.errorFacts, this.errorText),
    };
    this.resultFacts = make("div", { class: "dk-facts" });
    this.resultBody = make("div", { class: "dk-result" });
    this.panes.result = make("div", { class: "dk-pane", hidden: true }, this.resultFacts, this.resultBody);
    this.panes.usage = make("div", { class: "dk-pane dk-scroll", hidden: true }, (this.usageTask = make("div")), (this.usageGroups = make("div")));
    this.panes.events = make("div", { class: "dk-pane dk-scroll", hidden: true }, (this.eventRows = make("div", { role: "log", "aria-label": "what happened" })));
    return make("div", { class: "dk-side" }, this.tabs, ...Object.values(this.panes));
  }

  buildAsk() {
    this.yes = make("button", { type: "button", class: "dk-main", onclick: () => this.confirmed(true) });
    this.no = make("button", { type: "button", onclick: () => this.confirmed(false) });
    this.sentence = make("span");
    this.dialog = make("div", { class: "dk-ask", role: "alertdialog", "aria-label": "please confirm", hidden: true }, this.sentence, this.yes, this.no);
    return this.dialog;
  }

  buildFoot() {
    const button = (name, onclick) => make("button", { type: "button", "data-do": name, onclick });
    this.retry = button("retry", () => this.ask({ ask: "effect", action: "retry" }));
    this.rerun = button("rerun", () => this.ask({ ask: "effect", action: "rerun", ...this.target() }));
    this.cancel = button("cancel", () => this.ask({ ask: "effect", action: "cancel" }));
    this.note = make("span", { class: "dk-note", role: "status" });
    this.fresh = make("span", { class: "dk-fresh" });
    return make("div", { class: "dk-foot" }, this.retry, this.rerun, this.cancel, this.note, this.fresh);
  }

  // --- listening

  listen() {
    const on = (name, draw) => {
      const heard = () => { this.told[name] = performance.now(); draw.call(this); };
      this.model.on(`change:${name}`, heard);
      this.stops = [...(this.stops ?? []), () => this.model.off(`change:${name}`, heard)];
    };
    on("head", this.drawHead);
    on("groups", () => this.graph.draw(this.model.get("groups")));
    on("page", this.drawRows);
    on("task", this.taskCame);
    on("log", this.drawLog);
    on("result", this.drawResult);
    on("usage", this.drawUsage);
    on("events", this.drawEvents);
    on("confirm", this.drawAsk);
    on("notice", this.drawNotice);
    this.clock = setInterval(() => this.tick(), 1000);
    this.here = setInterval(() => { if (!document.hidden) this.ask({ ask: "here" }); }, HERE_MS);
    this.shown = () => { if (!document.hidden) this.ask({ ask: "here" }); };
    document.addEventListener("visibilitychange", this.shown);
  }

  gone() {
    for (const stop of this.stops) stop();
    clearInterval(this.clock);
    clearInterval(this.here);
    document.removeEventListener("visibilitychange", this.shown);
    kept.set(this.model.get("head").id, { query: this.query, task: this.task, tab: this.tab });
    if (kept.size > 50) kept.delete(kept.keys().next().value);
    this.model.send({ ask: "gone", view: this.view });
  }

  later(name, delay, action) {
    this.timers = this.timers ?? {};
    clearTimeout(this.timers[name]);
    this.timers[name] = setTimeout(action, delay);
  }

  // --- drawing

  all() {
    this.drawHead();
    this.graph.draw(this.model.get("groups"));
    this.drawRows();
    this.drawTask();
    this.drawLog();
    this.drawUsage();
    this.drawEvents();
    this.drawAsk();
    this.drawNotice();
    this.show(this.tab);
    this.drawChosen();
  }

  drawHead() {
    const head = this.model.get("head");
    if (!head.counts) { text(this.name, this.model.get("scene").name); text(this.status, "reading the run …"); return; }
    text(this.name, head.name);
    text(this.id, head.short);
    this.id.title = head.id;
    const glyph = { completed: "✓", failed: "✗", cancelled: "⊖", running: "◐", cancelling: "⊖", pending: "·" }[head.status] ?? "";
    text(this.status, `${glyph} ${head.cancelling ? "cancelling" : head.status}`);
    this.bar.setAttribute("aria-valuenow", head.ended);
    this.bar.setAttribute("aria-valuemax", head.total);
    head.counts.forEach((count, i) => {
      const share = head.total && count ? Math.max(0.4, 100 * count / head.total) : 0;
      this.segments[i].style.width = i === this.words.pending ? "0" : `${share}%`;
      const { chip, label } = this.chips[i], state = this.states[i];
      chip.hidden = !count && !this.query.states.includes(state.value);
      text(label, `${state.glyph} ${state.words} ${grouped(count)}`);
      chip.setAttribute("aria-pressed", String(this.query.states.includes(state.value)));
    });
    this.drawTrouble(head);
    const problem = head.problem ? `Cannot refresh: ${head.problem}` : head.hint;
    this.problem.hidden = !problem;
    text(this.problem, problem);
    this.drawButtons();
    this.tick();
  }

  drawTrouble(head) {
    const key = JSON.stringify([head.failures, head.counts[1]]);
    if (key === this.troubleShown) return;
    this.troubleShown = key;
    this.trouble.hidden = !head.failures.length;
    const rows = head.failures.map((row) => make("button", { type: "button", title: "Show its error", onclick: () => this.select(row[0], "error") },
      make("b", {}, `✗ ${row[0]}`), make("span", {}, row[7])));
    const more = head.counts[1] - head.failures.length;
    if (more > 0) rows.push(make("button", { type: "button", onclick: () => this.only("failed") }, make("span", { class: "dk-soft" }, `and ${grouped(more)} more that failed`)));
    this.trouble.replaceChildren(...rows);
  }

  tick() {
    const head = this.model.get("head");
    if (!head.counts) return;
    const since = (performance.now() - this.told.head) / 1000;
    const elapsed = head.elapsed_s + (head.over ? 0 : since);
    text(this.figures, [`${grouped(head.ended)} of ${grouped(head.total)}`, head.rate, `${seconds(elapsed)} ${head.over ? "in all" : "elapsed"}`, head.left].filter(Boolean).join(" · "));
    const age = head.age_s + since;
    const silent = this.asked > this.model.get("answered") && performance.now() - this.askedAt > SILENT_MS;
    const fresh = silent ? "the kernel is busy or gone: buttons wait for it" : head.over ? `ended ${this.ago(age)}` : age < 3 ? "updated just now" : `last change ${this.ago(age)}`;
    text(this.fresh, [fresh, head.driver].filter(Boolean).join(" · "));
    this.drawTimes();
  }

  ago(age) {
    return age < 3 ? "just now" : age < 86_400 ? `${seconds(age)} ago` : `${Math.round(age / 86_400)} d ago`;
  }

  drawChosen() {
    this.graph.choose(this.query.group);
    const box = this.model.get("scene").boxes.find((one) => one.key === this.query.group);
    this.scope.hidden = !box;
    text(this.scope, box ? `${box.title} ✕` : "");
  }

  drawRows() {
    const page = this.model.get("page");
    if (!page.rows) return;
    const only = this.query.states.length || this.query.text || this.query.group;
    text(this.order, this.query.calm ? "task ▾ in order" : "task ▾ trouble first");
    this.order.title = this.query.calm ? "Show what failed first" : "Show tasks in the order in which they were declared";
    text(this.total, plural(page.total, "task"));
    this.spacer.style.height = `${page.total * ROW_PX}px`;
    const nodes = page.rows.map((row, i) => this.row(row, page.offset + i));
    if (!nodes.length) nodes.push(make("div", { class: "dk-none" }, only ? "No task is like that now." : "No tasks."));
    this.rows.replaceChildren(this.spacer, ...nodes);
    this.drawTimes();
    this.drawShort();
  }

  row(row, place) {
    const [name, value, tries, , started, peak, queue, message] = row, state = this.byValue[value] ?? { glyph: "", words: value };
    const red = value === "failed" || value === "upstream_failed";
    const waits = value === "running" && started == null ? "handed to its queue, has not been seen to begin" : "";
    return make("div", { class: `dk-row${red ? " dk-red" : ""}${name === this.task ? " dk-on" : ""}`, style: `top:${place * ROW_PX}px`, role: "option",
      "aria-selected": String(name === this.task), "data-task": name, title: [name, queue, waits, message].filter(Boolean).join("\n"), onclick: () => this.select(name) },
      make("span", {}, name), make("span", { class: "dk-state" }, `${state.glyph} ${state.words}`), make("span", { class: "dk-n" }, tries),
      make("span", { class: "dk-n dk-time" }, "–"), make("span", { class: "dk-n" }, peak || "–"));
  }

  drawTimes() {
    const page = this.model.get("page");
    if (!page.rows) return;
    const now = page.now + (performance.now() - this.told.page) / 1000;
    this.rows.querySelectorAll(".dk-time").forEach((node, i) => {
      const [, value, , took, started] = page.rows[i] ?? [];
      text(node, value === "running" ? seconds(started == null ? null : Math.max(0, now - started)) : seconds(took));
    });
  }

  taskCame() {
    const name = this.model.get("task").name ?? null;
    if (name && name !== this.task) this.task = name;
    this.drawTask();
  }

  drawTask() {
    const task = this.model.get("task"), mine = task.name === this.task ? task : {};
    const state = this.byValue[mine.state] ?? { glyph: "", words: "" };
    text(this.what, this.task ?? "");
    for (const facts of [this.logFacts, this.errorFacts, this.resultFacts]) {
      if (!mine.name) facts.replaceChildren(this.task ? `asking for ${this.task} …` : "Select a task in the table or a box in the graph.");
      else facts.replaceChildren(make("b", {}, mine.name), ` ${state.glyph} ${state.words} · ${[mine.facts, mine.after].filter(Boolean).join(" · ")}`);
    }
    const [first, ...rest] = (mine.error ?? "").split("\n");
    const more = [...(mine.history ?? []), ...(mine.advice ? [`fix: ${mine.advice}`] : [])].map((line) => make("div", { class: "dk-soft" }, line));
    this.errorText.replaceChildren(...(mine.error ? [make("span", { class: "dk-bad" }, first), `\n${rest.join("\n").trimEnd()}\n\n`] : [mine.name ? "No error.\n\n" : ""]), ...more);
    this.drawAttempts(mine);
    this.drawLog();
    this.drawShort();
  }

  drawShort() {
    const task = this.model.get("task"), mine = task.name === this.task ? task : {};
    this.short.hidden = !mine.name;
    if (!mine.name) return;
    const links = [["log", "log"], ...(mine.error ? [["error", "whole error"]] : [])].flatMap(([tab, words]) => [" · ",
      make("a", { href: "#", onclick: (event) => { event.preventDefault(); this.show(tab); } }, words)]);
    this.short.replaceChildren(make("div", {}, make("b", {}, mine.name), ` · ${mine.facts}`, ...links),
      ...(mine.error ? [make("div", { class: "dk-bad" }, mine.error.split("\n")[0].slice(0, 400))] : []),
      ...[mine.advice ? `fix: ${mine.advice}` : mine.after].filter(Boolean).map((line) => make("div", { class: "dk-soft" }, line)));
  }

  drawUsage() {
    const usage = this.model.get("usage");
    if (usage.rows) this.usageGroups.replaceChildren(...usageOfGroups(usage));
  }

  drawAttempts(task) {
    this.usageTask.replaceChildren(...usageOfTask(task, (attempt) => this.select(task.name, "log", attempt)));
  }

  drawEvents() {
    const events = this.model.get("events");
    if (events.rows) this.eventRows.replaceChildren(...events.rows.map((row) => eventRow(row, this.byValue, (task, tab) => this.select(task, tab))));
  }

  drawLog() {
    const log = this.model.get("log");
    const mine = log.name === this.task ? log : {};
    const words = mine.name ? `${mine.cut ? "… the beginning is left out: run.logs() has it all\n" : ""}${mine.text || "(nothing written yet)"}` : "";
    text(this.logText, words);
    this.drawAttemptOfLog(mine);
    this.follow();
  }

  // Logs of attempts that were not the last are looked at too: which one it is, and the way to the others.
  drawAttemptOfLog(log) {
    const task = this.model.get("task"), attempts = task.name === this.task ? task.attempts ?? [] : [];
    this.whichLog.hidden = attempts.length < 2;
    this.whichLog.replaceChildren("log of attempt ", ...attempts.map(([number]) => make("button", { type: "button", "aria-pressed": String(Number(number) === log.attempt),
      onclick: () => this.select(this.task, null, Number(number)) }, number)));
  }

  follow() {
    if (this.follows) this.logText.scrollTop = this.logText.scrollHeight;
    this.toEnd.hidden = this.follows;
  }

  logScrolled() {
    const { scrollTop, clientHeight, scrollHeight } = this.logText;
    if (scrollTop + clientHeight >= scrollHeight - 8) this.follows = true;
    else if (scrollTop < (this.logTop ?? 0)) this.follows = false;  // only a person scrolls upwards
    this.logTop = scrollTop;
    this.toEnd.hidden = this.follows;
  }

  askResult() {
    this.resultBody.replaceChildren();
    if (this.task) this.ask({ ask: "result", name: this.task });
    this.drawResult();
  }

  drawResult() {
    const result = this.model.get("result");
    if (result.name !== this.task) return;
    const { kind, body } = result;
    // What a task made may look as it likes, but gets no script and none of this page.
    const frame = (html) => make("iframe", { sandbox: "", srcdoc: html, title: `the result of ${result.name}` });
    const shown = kind === "text/html" ? frame(`<style>${RESULT_STYLE}</style><body>${body}</body>`)
      : kind === "image/svg+xml" ? make("img", { src: `data:image/svg+xml;charset=utf-8,${encodeURIComponent(body)}`, alt: "" })
      : kind === "image/png" ? make("img", { src: `data:image/png;base64,${body}`, alt: "" }) : make("pre", {}, body);
    this.resultBody.replaceChildren(shown);
  }

  drawAsk() {
    const asked = this.model.get("confirm");
    this.dialog.hidden = !asked.action;
    if (!asked.action) return;
    text(this.sentence, asked.refused ? `Not now: ${asked.refused}` : asked.text);
    text(this.yes, asked.yes);
    text(this.no, asked.refused ? "Close" : asked.no);
    this.yes.hidden = Boolean(asked.refused);
    (asked.refused ? this.no : this.yes).focus({ preventScroll: true });
  }

  confirmed(yes) {
    const { action, group, name } = this.model.get("confirm");
    this.dialog.hidden = true;
    this.ask(yes ? { ask: "do", action, group, name } : { ask: "dismiss" });
  }

  drawNotice() {
    const notice = this.model.get("notice");
    this.note.classList.toggle("dk-bad", Boolean(notice.is_bad));
    const isOld = !notice.at || Date.now() / 1000 - notice.at > 20;
    text(this.note, isOld ? "" : notice.text);
    this.later("notice", 15_000, () => text(this.note, ""));
  }

  // --- choosing

  target() {
    return this.query.group && !(this.tab === "tasks" && this.task && this.isShown(this.task)) ? { group: this.query.group } : this.task ? { name: this.task } : { group: this.query.group };
  }

  isShown(name) {
    return (this.model.get("page").rows ?? []).some((row) => row[0] === name);
  }

  drawButtons() {
    const head = this.model.get("head");
    if (!head.counts) return;
    const at = (value) => head.counts[this.states.findIndex((state) => state.value === value)];
    const failed = at("failed") + at("upstream_failed") + at("cancelled");
    const target = this.target(), box = this.model.get("scene").boxes.find((one) => one.key === target.group);
    const from = target.name ?? (box ? box.title.replace(/ × .*/, "") : null);
    text(this.retry, failed ? `Retry ${at("failed") ? "failed" : "cancelled"} (${grouped(failed)})` : "Retry failed");
    this.retry.disabled = !failed || head.cancelling;
    this.retry.classList.toggle("dk-main", failed > 0);
    text(this.rerun, from ? `Rerun from ${from}` : "Rerun from …");
    this.rerun.title = from ? "" : "Select a box or a task first";
    this.rerun.disabled = !from;
    text(this.cancel, head.cancelling ? "Cancelling …" : "Cancel");
    this.cancel.disabled = head.over || head.cancelling;
  }

  toggle(value) {
    const { states } = this.query;
    this.query.states = states.includes(value) ? states.filter((one) => one !== value) : [...states, value];
    this.rows.scrollTop = 0;
    this.show("tasks");
    this.page();
    this.drawHead();
  }

  reorder() {
    this.query.calm = !this.query.calm;
    this.rows.scrollTop = 0;
    this.drawRows();
    this.page();
  }

  only(value) {
    this.query.states = [];
    this.toggle(value);
  }

  show(name) {
    if (this.tabTold !== name) this.ask({ ask: "tab", name: (this.tabTold = name) });
    this.tab = name;
    for (const [key, pane] of Object.entries(this.panes)) pane.hidden = key !== name;
    for (const button of this.tabs.querySelectorAll("button")) button.setAttribute("aria-selected", String(button.dataset.tab === name));
    if (name === "result") this.askResult();
    if (name === "log") this.follow();
    this.drawButtons();
  }

  key(event) {
    const rows = this.model.get("page").rows ?? [];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Enter" && this.task) { event.preventDefault(); this.show("error"); return; }
    if (!step || !rows.length) return;
    event.preventDefault();
    event.stopPropagation();
    const at = rows.findIndex((row) => row[0] === this.task);
    const next = rows[Math.max(0, Math.min(rows.length - 1, at + step))];
    this.select(next[0]);
    this.rows.querySelector(".dk-on")?.scrollIntoView({ block: "nearest" });
  }
}

export default {
  render({ model, el }) {
    const view = new View(model, el);
    return () => view.gone();
  },
};
