// What the parts of the live view are drawn with. The files of this folder are put together by widget.py, in order.
// Every text of a user becomes a text node, never markup.

const SVG = "http://www.w3.org/2000/svg";

function make(tag, attributes = {}, ...children) {
  const isSvg = ["svg", "g", "path", "rect", "text", "title"].includes(tag);
  const node = isSvg ? document.createElementNS(SVG, tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function text(node, words) {
  if (node.textContent !== words) node.textContent = words;
}

function seconds(value) {
  if (value == null || value < 0) return "–";
  if (value > 0 && value < 0.095) return value < 0.001 ? "<1 ms" : `${(1000 * value).toFixed(0)} ms`;
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 60) return `${value.toFixed(0)} s`;
  const whole = Math.floor(value), minutes = Math.floor(whole / 60) % 60, hours = Math.floor(whole / 3600);
  const two = (n) => String(n).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
}

const grouped = (n) => n.toLocaleString("en-US");
const plural = (n, word) => `${grouped(n)} ${word}${n === 1 ? "" : "s"}`;
