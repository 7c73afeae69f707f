// The graph of a run: boxes laid out by the kernel, coloured by the states of their tasks.

const WIDE_PX = 800, LEAST_SCALE = 0.72;

class Graph {
  // `words`: the vocabulary of states; `onselect` is called with the key of a box.
  constructor(scene, states, words, onselect) {
    this.states = states;
    this.words = words;
    this.onselect = onselect;
    this.node = make("div", { class: "dk-graph" });
    this.build(scene);
  }

  build(scene) {
    const pad = 12, width = scene.width + 2 * pad, height = scene.height + 2 * pad;
    // A wide graph is never drawn smaller than can be read: it takes the whole width, and what does not fit is scrolled to.
    this.isWide = width > WIDE_PX;
    const svg = make("svg", { viewBox: `${-pad} ${-pad} ${width} ${height}`, width, height, style: `min-width:${Math.round(LEAST_SCALE * width)}px`, role: "group", "aria-label": `the graph of ${scene.name}` });
    const lines = make("g", { fill: "none", stroke: "var(--dk-edge)", "stroke-width": 1.4 });
    for (const path of scene.edges) lines.append(make("path", { d: path }));
    svg.append(lines);
    this.boxes = scene.boxes.map((box) => this.buildBox(box, svg));
    this.node.append(svg);
    requestAnimationFrame(() => { this.node.scrollLeft = (this.node.scrollWidth - this.node.clientWidth) / 2; });
  }

  buildBox(box, svg) {
    const [x, y, width, height] = box.at;
    const many = box.tasks > 1;
    const group = make("g", { class: "dk-box", transform: `translate(${x},${y})`, tabindex: "0", role: "button", "aria-pressed": "false", "data-key": box.key,
      onclick: () => this.onselect(box.key),
      onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.onselect(box.key); } } });
    const hint = make("title");
    group.append(hint);
    if (many) group.append(make("rect", { x: 4, y: 4, width, height, rx: 7, fill: "var(--dk-bg)", stroke: "var(--dk-line)" }));
    const plate = make("rect", { class: "dk-plate", width, height, rx: 7, "stroke-dasharray": box.dashed ? "4 3" : null });
    const title = make("text", { x: 12, y: 18 }), sub = make("text", { class: "dk-sub", x: 12, y: 32 });
    group.append(make("rect", { class: "dk-ring", x: -4, y: -4, width: width + (many ? 12 : 8), height: height + (many ? 12 : 8), rx: 10 }), plate, title, sub);
    box.more.forEach((line, i) => group.append(make("text", { class: "dk-sub", x: 12, y: 46 + 14 * i }, line)));
    const bar = make("g", { transform: `translate(12,${height - 14})` });
    const parts = many ? this.states.map((state) => {
      const part = make("rect", { height: 6, width: 0, fill: `var(--dk-${state.value})` });
      bar.append(part);
      return part;
    }) : [];
    group.append(bar);
    svg.append(group);
    return { box, group, hint, plate, title, sub, parts, width: width - 24 };
  }

  // `groups`: [counts by state, what is known of their tasks], in the order of the boxes.
  draw(groups) {
    groups.forEach(([counts, details], i) => this.boxes[i] && this.drawBox(this.boxes[i], counts, details));
  }

  drawBox(drawn, counts, details) {
    const total = counts.reduce((sum, count) => sum + count, 0) || 1;
    const loud = this.states[this.words.loudest.find((i) => counts[i]) ?? this.words.pending];
    const { box } = drawn;
    text(drawn.title, `${loud.glyph} ${box.title}`);
    text(drawn.sub, [box.queue, details].filter(Boolean).join(" · "));
    const words = counts.map((count, i) => count ? `${grouped(count)} ${this.states[i].words}` : "").filter(Boolean).join(", ");
    text(drawn.hint, `${box.title}: ${words}`);
    drawn.group.setAttribute("aria-label", `${box.title}: ${words}`);
    drawn.group.setAttribute("data-state", loud.value);
    drawn.plate.style.stroke = `var(--dk-${loud.value})`;
    drawn.plate.style.strokeWidth = loud.value === "failed" || loud.value === "upstream_failed" ? 2 : 1.5;
    if (loud.value === "skipped") drawn.plate.setAttribute("stroke-dasharray", "4 3");
    let at = 0;
    const shares = counts.map((count) => count ? Math.max(2, drawn.width * count / total) : 0);
    const scale = drawn.width / (shares.reduce((sum, share) => sum + share, 0) || 1);
    drawn.parts.forEach((part, i) => {
      part.setAttribute("x", at.toFixed(1));
      part.setAttribute("width", (shares[i] * scale).toFixed(1));
      at += shares[i] * scale;
    });
  }

  choose(key) {
    for (const drawn of this.boxes) {
      const on = drawn.box.key === key;
      drawn.group.classList.toggle("dk-on", on);
      drawn.group.setAttribute("aria-pressed", String(on));
    }
  }
}
