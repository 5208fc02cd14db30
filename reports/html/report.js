"use strict";
(() => {
  const LEFT = 52, TOP = 10, SVG = "http://www.w3.org/2000/svg";
  const tip = document.getElementById("tip");
  const make = (name, attributes, text) => {
    const element = document.createElementNS(SVG, name);
    for (const key in attributes) element.setAttribute(key, attributes[key]);
    if (text !== undefined) element.textContent = text;
    return element;
  };
  const digits = (value) => {
    for (const [factor, letter] of [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (Math.abs(value) >= factor) return +(value / factor).toPrecision(4) + letter;
    return String(+value.toPrecision(4));
  };
  const shown = (value, unit) => digits(value) + (unit ? " " + unit : "");
  const place = (axis, value) => axis[2]
    ? (Math.log10(value) - Math.log10(axis[0])) / (Math.log10(axis[1]) - Math.log10(axis[0]))
    : (value - axis[0]) / (axis[1] - axis[0]);
  const value = (axis, share) => axis[2]
    ? 10 ** (Math.log10(axis[0]) + share * (Math.log10(axis[1]) - Math.log10(axis[0])))
    : axis[0] + share * (axis[1] - axis[0]);
  const ticks = (low, high, log) => {
    const found = [];
    if (log && Math.log10(high / low) >= 2) {
      for (let power = Math.ceil(Math.log10(low)); power <= Math.log10(high); power++) found.push(10 ** power);
      return found;
    }
    const rough = (high - low) / 6, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough * 0.999);
    for (let index = Math.ceil(low / step - 1e-9); index * step <= high * (1 + 1e-12); index++) found.push(index * step);
    return found;
  };
  const tell = (text, x, y) => {
    tip.textContent = text;
    tip.style.display = "block";
    const box = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, x + 14 + box.width > innerWidth ? x - box.width - 14 : x + 14) + "px";
    tip.style.top = Math.max(4, Math.min(innerHeight - box.height - 4, y + 12)) + "px";
  };
  const hush = () => { tip.style.display = "none"; };

  class Chart {
    constructor(svg) {
      this.svg = svg;
      this.data = JSON.parse(svg.dataset.chart);
      this.plot = svg.querySelector(".plot");
      [, , this.width, this.height] = this.plot.getAttribute("viewBox").split(" ").map(Number);
      this.ticks = svg.querySelector(".xticks");
      this.words = svg.querySelector(".words");
      this.first = this.ticks.cloneNode(true);
      this.view = [0, 1];
      this.cursor = make("path", { class: "cursor", d: "" });
      this.chosen = make("rect", { class: "chosen", y: TOP, height: this.height, width: 0 });
      svg.append(this.chosen, this.cursor);
      this.listen();
    }
    listen() {
      const svg = this.svg;
      svg.addEventListener("pointerdown", (event) => {
        const share = this.share(event);
        if (share >= 0 && share <= 1 && event.pointerType !== "touch") { this.from = share; event.preventDefault(); svg.focus({ preventScroll: true, focusVisible: false }); }
      });
      svg.addEventListener("pointermove", (event) => this.hover(event));
      addEventListener("pointerup", (event) => this.release(event));
      svg.addEventListener("pointerleave", () => { this.still(); });
      svg.addEventListener("dblclick", () => zoom(this, [0, 1]));
      svg.addEventListener("keydown", (event) => this.key(event));
      svg.addEventListener("blur", () => this.still());
    }
    share(event) {
      const box = this.svg.getBoundingClientRect(), scale = box.width / this.svg.viewBox.baseVal.width;
      return ((event.clientX - box.left) / scale - LEFT) / this.width;
    }
    hover(event) {
      const share = this.share(event);
      if (this.from !== undefined) {
        const low = Math.max(0, Math.min(this.from, share)), high = Math.min(1, Math.max(this.from, share));
        this.chosen.setAttribute("x", LEFT + low * this.width);
        this.chosen.setAttribute("width", (high - low) * this.width);
      }
      if (share < 0 || share > 1) return this.still();
      const box = this.svg.getBoundingClientRect(), scale = box.width / this.svg.viewBox.baseVal.width;
      this.point(share, ((event.clientY - box.top) / scale - TOP) / this.height, event.clientX, event.clientY);
    }
    still() { this.cursor.setAttribute("d", ""); hush(); }
    release(event) {
      if (this.from === undefined) return;
      const share = this.share(event), low = Math.max(0, Math.min(this.from, share)), high = Math.min(1, Math.max(this.from, share));
      this.from = undefined;
      this.chosen.setAttribute("width", 0);
      const [a, b] = this.view;
      if (high - low > 0.02) zoom(this, [a + low * (b - a), a + high * (b - a)]);
    }
    key(event) {
      const [a, b] = this.view, middle = a + (b - a) * (this.at ?? 0.5), half = (b - a) / 4;
      const moves = { ArrowLeft: -0.02, ArrowRight: 0.02 };
      if (event.key in moves) this.step(moves[event.key]);
      else if (event.key === "+" || event.key === "=") zoom(this, [middle - half, middle + half]);
      else if (event.key === "-") zoom(this, [middle - 4 * half, middle + 4 * half]);
      else if (event.key === "0" || event.key === "Escape") zoom(this, [0, 1]);
      else return;
      event.preventDefault();
    }
    step(move) {
      const share = Math.min(1, Math.max(0, (this.at ?? 0.5) + move)), box = this.svg.getBoundingClientRect();
      const scale = box.width / this.svg.viewBox.baseVal.width;
      this.point(share, 0.5, box.left + (LEFT + share * this.width) * scale, box.top + (TOP + this.height / 2) * scale);
    }
    point(share, down, clientX, clientY) {
      const { x, y, series } = this.data, [a, b] = this.view;
      this.at = share;
      const at = value(x, a + share * (b - a)), lines = [];
      let near = null;
      for (const one of series) {
        if (one.k === "dots") near = this.nearest(one, share, down, near);
        else if (one.x.length) {
          const index = this.index(one.x, at);
          lines.push(one.n + "  " + shown(one.y[index], y[3]));
        }
      }
      if (near) lines.unshift(near.one.n + "\n" + shown(near.one.x[near.index], x[3]) + ", " + shown(near.one.y[near.index], y[3]));
      else if (lines.length) lines.unshift(shown(at, x[3]));
      this.cursor.setAttribute("d", "M" + (LEFT + share * this.width) + " " + TOP + "v" + this.height);
      lines.length ? tell(lines.join("\n"), clientX, clientY) : hush();
    }
    index(values, at) {
      let low = 0, high = values.length - 1;
      while (low < high) { const middle = (low + high) >> 1; values[middle] < at ? low = middle + 1 : high = middle; }
      return low > 0 && at - values[low - 1] < values[low] - at ? low - 1 : low;
    }
    nearest(one, share, down, best) {
      const { x, y } = this.data, [a, b] = this.view;
      for (let index = 0; index < one.x.length; index++) {
        const dx = ((place(x, one.x[index]) - a) / (b - a) - share) * this.width;
        const dy = (1 - place(y, one.y[index]) - down) * this.height, far = dx * dx + dy * dy;
        if (far < (best ? best.far : 400)) best = { one, index, far };
      }
      return best;
    }
    show(view) {
      this.view = view;
      const [a, b] = view, whole = a === 0 && b === 1;
      this.plot.setAttribute("viewBox", a * this.width + " 0 " + (b - a) * this.width + " " + this.height);
      this.words.setAttribute("visibility", whole ? "visible" : "hidden");
      if (whole) return this.ticks.replaceChildren(...this.first.cloneNode(true).childNodes);
      const { x } = this.data, base = TOP + this.height;
      this.ticks.replaceChildren();
      for (const tick of ticks(value(x, a), value(x, b), x[2])) {
        const at = LEFT + (place(x, tick) - a) / (b - a) * this.width;
        this.ticks.append(make("path", { d: "M" + at + " " + base + "v4", class: "axis" }),
          make("text", { x: at, y: base + 15, class: "tick middle" }, digits(tick)));
      }
    }
  }
  const charts = [...document.querySelectorAll("svg.chart")].map((svg) => new Chart(svg));
  const zoom = (chart, [a, b]) => {
    const width = Math.min(1, b - a), low = Math.max(0, Math.min(1 - width, a));
    if (width < 1e-4) return;
    const group = chart.svg.dataset.group;
    for (const one of charts) if (one === chart || (group && one.svg.dataset.group === group)) one.show([low, low + width]);
    chart.still();
  };
  for (const element of document.querySelectorAll("[data-tip]")) {
    element.addEventListener("pointermove", (event) => tell(element.dataset.tip, event.clientX, event.clientY));
    element.addEventListener("pointerleave", hush);
  }
  document.documentElement.dataset.ready = charts.length;
})();
