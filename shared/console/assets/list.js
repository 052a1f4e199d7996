// A list of any length of which only what is seen exists. Rows have one height.

import { h } from "./dom.js";

const AROUND = 6;

export class LongList {
  /** `draw(item, index)` gives a row's link; `name` says what the list holds. */
  constructor({ draw, name, height, key }) {
    Object.assign(this, { draw, height, key, items: [], rows: new Map(), current: 0 });
    this.space = h("div", { class: "space", role: "list", "aria-label": name });
    this.box = h("div", { class: "longlist" }, this.space);
    this.box.addEventListener("scroll", () => this.later(), { passive: true });
    this.box.addEventListener("keydown", (event) => this.keyed(event));
    this.watch = new ResizeObserver(() => this.later());
    this.watch.observe(this.box);
  }

  /** Shows `items`. What had the focus keeps it, wherever it stands now. */
  set(items) {
    const within = [...this.rows].find(([, row]) => row.contains(document.activeElement));
    const held = within && this.key(this.items[within[0]]);
    this.items = items;
    this.space.style.setProperty("height", `${items.length * this.rowHeight()}px`);
    if (this.back && this.space.offsetHeight >= this.back + this.box.clientHeight) { this.box.scrollTop = this.back; this.back = 0; }
    for (const row of this.rows.values()) row.remove();
    this.rows.clear();
    this.paint();
    if (held === undefined) return;
    const now = items.findIndex((item) => this.key(item) === held);
    // Where it is gone, what stands in its place has the focus: whoever moves with keys goes on there.
    const row = this.rows.get(now >= 0 ? now : Math.min(within[0], items.length - 1));
    row?.querySelector("a,button")?.focus({ preventScroll: true });
  }

  /** Goes to where it was left, as soon as it is as long as it was then. */
  goBack(top) { this.back = top; this.set(this.items); }

  rowHeight() { return this.height(); }

  later() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.paint(); });
  }

  paint() {
    const height = this.rowHeight();
    const first = Math.max(0, Math.floor(this.box.scrollTop / height) - AROUND);
    const last = Math.min(this.items.length, Math.ceil((this.box.scrollTop + this.box.clientHeight) / height) + AROUND);
    for (const [index, row] of this.rows) {
      if ((index < first || index >= last) && !row.contains(document.activeElement)) { row.remove(); this.rows.delete(index); }
    }
    for (let index = first; index < last; index += 1) {
      if (this.rows.has(index)) continue;
      const row = h("div", { role: "listitem", class: "row", "aria-setsize": this.items.length, "aria-posinset": index + 1, vars: { transform: `translateY(${index * height}px)`, height: `${height}px` } }, this.draw(this.items[index], index));
      this.rows.set(index, row);
      const after = [...this.rows.keys()].filter((other) => other > index).sort((a, b) => a - b)[0];
      this.space.insertBefore(row, after === undefined ? null : this.rows.get(after));
    }
  }

  /** Puts the row `index` in sight and gives it the focus. */
  focus(index) {
    if (this.items.length === 0) return;
    this.current = Math.max(0, Math.min(this.items.length - 1, index));
    const height = this.rowHeight();
    const top = this.current * height;
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    if (top + height > this.box.scrollTop + this.box.clientHeight) this.box.scrollTop = top + height - this.box.clientHeight;
    this.paint();
    this.rows.get(this.current)?.querySelector("a,button")?.focus({ preventScroll: true });
  }

  /** Goes on from what has the focus, or else from what is open. */
  step(by) {
    const within = [...this.rows].find(([, row]) => row.contains(document.activeElement));
    const open = within ? -1 : this.items.findIndex((item) => this.key(item) === this.open);
    this.focus(within ? within[0] + by : open >= 0 ? open + by : this.current);
  }

  /** Gives the focus to the row of `key`, or to the one that stands in its place. */
  reach(key) {
    const found = this.items.findIndex((item) => this.key(item) === key);
    this.focus(found >= 0 ? found : this.current);
  }

  keyed(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.rowHeight()) - 1);
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page }[event.key];
    if (by) this.step(by);
    else if (event.key === "Home") this.focus(0);
    else if (event.key === "End") this.focus(this.items.length - 1);
    else return;
    event.preventDefault();
  }
}
