// The samples of a run: a list that is filled while it is scrolled, filters, and one sample in detail.
"use strict";

const assay = (() => {
  const BATCH = 60; // rows added at once: a list of 10,000 opens as fast as one of 60
  const ACROSS = 10; // small pictures per row of a sheet
  const NAMES = { b: "broken", s: "standing", d: "in doubt", n: "not verified", w: "misclassified" };
  const SVG = "http://www.w3.org/2000/svg";
  let data = null;
  let shown = []; // numbers of the rows that fit the filters, in order
  let drawn = 0;

  const root = () => document.body.dataset.root;
  const section = () => document.getElementById("samples");
  const at = (column, row) => data[column]?.[row] ?? null;
  const className = (label) => (label === null ? "–" : (data.classes[label] ?? String(label)));
  const signed = (value) => (value === null ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(value).toPrecision(3)}`);
  const percent = (value) => `${(100 * value).toFixed(value > 0 && value < 0.01 ? 2 : 1)} %`;

  function distance(value) {
    if (value === null) return "–";
    return section().dataset.unit === "255" ? `${(255 * value).toFixed(2)}/255` : String(Number(value.toPrecision(3)));
  }

  function make(tag, className = "", text = "") {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== "") made.textContent = text;
    return made;
  }

  function thumbnail(row) {
    const made = make("span", "thumb");
    const place = at("place", row) ?? -1;
    if (place < 0) return made;
    const [sheet, within] = [Math.floor(place / (ACROSS * ACROSS)), place % (ACROSS * ACROSS)];
    made.style.backgroundImage = `url("${root()}${data.sheets}/${sheet}.jpg")`;
    const step = 100 / (ACROSS - 1);
    made.style.backgroundPosition = `${step * (within % ACROSS)}% ${step * Math.floor(within / ACROSS)}%`;
    return made;
  }

  const badge = (row) => make("span", `outcome ${data.outcome[row]}`, NAMES[data.outcome[row]]);

  function outcome(row) {
    const letter = data.outcome[row];
    const other = at("other", row);
    const whole = make("span");
    whole.append(badge(row));
    if (other !== null) whole.append(make("span", "facts", `broken by ${data.others[other]}`));
    else if (letter === "n") whole.append(make("span", "facts", at("problem", row) ?? ""));
    else if (letter === "b" && at("stage", row)) whole.append(make("span", "facts", at("stage", row)));
    return whole;
  }

  function classes(row) {
    const [truth, clean, adversarial] = [at("label", row), at("clean", row), at("adv", row)];
    const end = data.outcome[row] === "w" ? clean : data.outcome[row] === "b" ? adversarial : null;
    return end === null ? className(truth) : `${className(truth)} → ${className(end)}`;
  }

  function foundAt(row) {
    if (data.outcome[row] !== "b" || at("iteration", row) === null) return "–";
    return data.iteration[row] > 0 ? `iteration ${at("iteration", row).toLocaleString("en")}` : `query ${at("query", row).toLocaleString("en")}`;
  }

  function line(row) {
    const made = make("tr");
    const first = make("th");
    first.scope = "row";
    const open = make("button", "sample");
    open.type = "button";
    open.append(thumbnail(row), make("span", "", data.id[row]));
    first.append(open);
    made.append(first);
    const add = (label, content, numeric = false) => {
      const cell = make("td", numeric ? "n" : "");
      cell.dataset.label = label;
      cell.append(content);
      made.append(cell);
    };
    const [before, after] = [at("margin0", row), at("margin", row)];
    add("Outcome", outcome(row));
    add("Class", classes(row));
    add("Margin", before === null ? signed(after) : `${signed(before)} → ${signed(after)}`, true);
    add("Distance", data.outcome[row] === "w" ? "–" : distance(at("distance", row)), true);
    add("Found at", foundAt(row), true);
    made.dataset.row = row;
    return made;
  }

  function more() {
    const body = section().querySelector("tbody");
    body.append(...shown.slice(drawn, drawn + BATCH).map(line));
    drawn = Math.min(drawn + BATCH, shown.length);
  }

  const last = Number.POSITIVE_INFINITY;
  // An attack that seeks the nearest point stops on the boundary: then the distance says how near a sample is.
  function nearness(row) {
    if (data.outcome[row] === "w") return last;
    const [margin, far] = [at("margin", row), at("distance", row)];
    if (data.minimal) return far === null ? last : Math.abs(far - data.eps);
    return margin === null ? last : Math.abs(margin);
  }

  const ORDERS = {
    near: nearness,
    order: (row) => row,
    margin: (row) => (data.outcome[row] === "w" ? last : (at("margin", row) ?? last)),
    distance: (row) => (data.outcome[row] === "b" ? (at("distance", row) ?? last) : last),
    effort: (row) => (data.outcome[row] === "b" ? (at("query", row) ?? last) : last),
  };

  function update(form) {
    const { outcome: wanted, sort, search } = form.elements;
    const words = search.value.trim().toLowerCase().split(/\s+/).filter(Boolean);
    const fits = (row) => {
      if (wanted.value && data.outcome[row] !== wanted.value) return false;
      const text = words.length ? `${data.id[row]} ${classes(row)}`.toLowerCase() : "";
      return words.every((word) => text.includes(word));
    };
    const value = ORDERS[sort.value];
    const rows = [...data.id.keys()].filter(fits).map((row) => [value(row), row]);
    rows.sort(([a, one], [b, other]) => (a === b ? one - other : a - b));
    shown = rows.map(([, row]) => row);
    drawn = 0;
    section().querySelector("tbody").replaceChildren();
    more();
    form.querySelector("output").textContent = `${shown.length.toLocaleString("en")} of ${data.id.length.toLocaleString("en")}`;
  }

  // ------------------------------------------------------------------ one sample

  function sentence(row) {
    const letter = data.outcome[row];
    if (letter === "w") return `Misclassified without an attack, as ${className(at("clean", row))}.`;
    if (letter === "b") {
      const when = foundAt(row) === "–" ? "" : ` at ${foundAt(row)}`;
      const stage = at("stage", row) ? ` by ${at("stage", row)}` : "";
      const bits = at("uint8", row) === null ? "" : at("uint8", row) ? " Still adversarial after rounding to 8 bits." : " Rounding to 8 bits undoes it.";
      return `Broken${when}${stage}, and verified on a fresh forward pass.${bits}`;
    }
    if (letter === "n") return `A claimed success was not verified: ${at("problem", row) ?? "no reason recorded"}. It counts as standing.`;
    const other = at("other", row);
    if (other !== null) return `This attack did not break it; ${data.others[other]} did.`;
    return letter === "d" ? "Not broken, but in doubt: a stronger attack may still break it." : "No attack broke it.";
  }

  function pictures(row) {
    const made = make("div", "triplet");
    const factor = at("factor", row) ?? 0;
    if (factor) {
      const image = make("img");
      image.src = `${root()}${data.triplets}/${row}.png`;
      image.alt = `The original, the change magnified ${factor} times around grey, and the adversarial image`;
      const names = make("div", "facts");
      names.append(make("span", "", "original"), make("span", "", `change ×${factor}`), make("span", "", "adversarial"));
      made.append(image, names);
    } else {
      made.append(thumbnail(row));
      if (data.outcome[row] === "b") {
        made.append(make("p", "facts", data.triplets ? "Its adversarial image is left out to keep this report small." : "The run kept no adversarial images: run it with --keep-images to see them here."));
      }
    }
    return made;
  }

  // The softmax gives the predicted class and the margin its lead, so the other end of the margin follows.
  function leads(row) {
    const [truth, target] = [at("label", row), at("target", row)];
    const [p0, m0, p, m] = ["p0", "margin0", "p", "margin"].map((column) => at(column, row));
    const broken = data.outcome[row] === "b";
    const known = (value) => (value === null || !(value <= 1.001) ? "–" : percent(Math.min(value, 1)));
    const table = make("table", "before-after");
    const add = (cells, tag = "td") => {
      const line = make("tr");
      cells.forEach((text, place) => {
        const cell = make(place ? tag : "th", place ? "n" : "", text);
        if (!place || tag === "th") cell.scope = tag === "th" ? "col" : "row";
        line.append(cell);
      });
      table.append(line);
    };
    add(["", "before", "after"], "th");
    const end = broken && p !== null;
    if (target === null && data.outcome[row] !== "w") {
      add([`${className(truth)} (true)`, known(p0), end ? known(p * Math.exp(m)) : "–"]);
      if (end) add([className(at("adv", row)), p0 === null || m0 === null ? "–" : `≤ ${known(p0 * Math.exp(-m0))}`, known(p)]);
      else if (p0 !== null && m0 !== null) add(["best other class", known(p0 * Math.exp(-m0)), "–"]);
    } else if (target !== null) {
      add([`${className(at("clean", row))} (before)`, known(p0), "–"]);
      add([`${className(target)} (target)`, p0 === null || m0 === null ? "–" : known(p0 * Math.exp(-m0)), end ? known(p) : "–"]);
    } else add([className(at("clean", row)), known(p0), "–"]);
    add([broken ? "margin, in logits" : "lowest margin, in logits", signed(m0), signed(m)]);
    return table;
  }

  function drawing(width, height) {
    const made = document.createElementNS(SVG, "svg");
    made.setAttribute("viewBox", `0 0 ${width} ${height}`);
    made.setAttribute("role", "img");
    made.add = (tag, values, text = "") => {
      const part = document.createElementNS(SVG, tag);
      for (const [name, value] of Object.entries(values)) part.setAttribute(name, value);
      part.textContent = text;
      made.append(part);
    };
    return made;
  }

  // Points that the records hold: margins at the start and at the end, or every better distance.
  function wayOf(row) {
    const steps = data.ways[row];
    if (steps) {
      const byQuery = steps.every(([iteration]) => iteration === 0);
      return {
        label: "distance", unit: byQuery ? "query" : "iteration", line: data.eps, lineName: "radius", step: true,
        points: steps.map(([iteration, query, far]) => [byQuery ? query : iteration, far, distance(far)]),
      };
    }
    const [before, after] = [at("margin0", row), at("margin", row)];
    if (before === null || after === null || data.outcome[row] === "w") return null;
    const broken = data.outcome[row] === "b" && at("iteration", row) !== null;
    const byQuery = broken ? !at("iteration", row) : !at("iterations", row);
    const end = broken ? at(byQuery ? "query" : "iteration", row) : at(byQuery ? "queries" : "iterations", row);
    return {
      label: "margin", unit: byQuery ? "query" : "iteration", line: 0, lineName: "decision boundary", step: false,
      points: [[0, before, signed(before)], [end ?? 1, after, signed(after)]],
    };
  }

  function wayChart(row) {
    const way = wayOf(row);
    if (way === null) return make("span");
    const [width, height, left, right, top, bottom] = [420, 190, 16, 16, 26, 40];
    const xs = way.points.map(([x]) => x);
    const ys = [...way.points.map(([, y]) => y), way.line];
    const [low, high] = [Math.min(...ys), Math.max(...ys)];
    const spare = 0.12 * (high - low || 1);
    const [first, end] = [way.step ? Math.min(...xs) : 0, Math.max(...xs)];
    const x = (value) => left + ((value - first) / (end - first || 1)) * (width - left - right);
    const y = (value) => top + ((high + spare - value) / (high - low + 2 * spare)) * (height - top - bottom);
    const chart = drawing(width, height);
    chart.setAttribute("class", "way");
    const told = `${way.label} from ${way.points[0][2]} to ${way.points.at(-1)[2]} at ${way.unit} ${end.toLocaleString("en")}`;
    chart.setAttribute("aria-label", told);
    chart.add("line", { x1: left, x2: width - right, y1: y(way.line), y2: y(way.line), class: "limit" });
    const spots = way.points.map(([place, value]) => [x(place), y(value)]);
    const path = spots.map(([px, py], place) => (place === 0 ? `M${px} ${py}` : way.step ? `H${px} V${py}` : `L${px} ${py}`)).join(" ");
    chart.add("path", { d: path, class: way.step ? "known" : "unknown" });
    for (const [px, py] of [spots[0], spots.at(-1)]) chart.add("circle", { cx: px, cy: py, r: 4 });
    const [[ax, ay], [bx, by]] = [spots[0], spots.at(-1)];
    const falls = by >= ay; // numbers stand where the line does not run
    chart.add("text", { x: ax, y: falls ? ay - 9 : ay + 19 }, way.points[0][2]);
    if (way.points.length > 1) chart.add("text", { x: bx, y: falls ? by + 19 : by - 9, "text-anchor": "end" }, way.points.at(-1)[2]);
    chart.add("text", { x: left, y: height - 8 }, `${way.unit} ${first.toLocaleString("en")}`);
    chart.add("text", { x: width - right, y: height - 8, "text-anchor": "end" }, `${way.unit} ${end.toLocaleString("en")}`);
    const figure = make("figure");
    const how = way.step
      ? `Distance of the nearest adversarial point found so far; the line is the radius, ${distance(data.eps)}.`
      : `Margin before the attack and ${data.outcome[row] === "b" ? "where it succeeded" : "at the lowest point it reached"}; the line is the decision boundary. Records hold no margins in between.`;
    figure.append(chart, make("figcaption", "facts", how));
    return figure;
  }

  function open(row) {
    const dialog = document.getElementById("sample");
    const place = shown.indexOf(row);
    const title = make("h3", "", `Sample ${data.id[row]}: ${classes(row)}`);
    title.id = "sample-title";
    const bar = make("div", "dialog-bar");
    const button = (text, label, act, usable = true) => {
      const made = make("button", "", text);
      Object.assign(made, { type: "button", disabled: !usable });
      made.setAttribute("aria-label", label);
      made.addEventListener("click", act);
      bar.append(made);
    };
    button("‹", "Previous sample", () => open(shown[place - 1]), place > 0);
    button("›", "Next sample", () => open(shown[place + 1]), place >= 0 && place + 1 < shown.length);
    button("×", "Close", () => dialog.close());
    const head = make("div", "dialog-head");
    head.append(title, bar);
    const both = make("div", "dialog-parts");
    both.append(wayChart(row), leads(row));
    dialog.replaceChildren(head, badge(row), make("p", "", sentence(row)), pictures(row), both);
    dialog.dataset.row = row;
    if (!dialog.open) dialog.showModal();
    dialog.focus();
    history.replaceState(null, "", `#sample=${encodeURIComponent(data.id[row])}`);
  }

  function fromAddress(form) {
    const asked = new URLSearchParams(location.hash.slice(1));
    if (asked.has("show")) {
      form.elements.outcome.value = asked.get("show");
      update(form);
      section().scrollIntoView();
    }
    const row = asked.has("sample") ? data.id.indexOf(asked.get("sample")) : -1;
    if (row >= 0) open(row);
  }

  function start() {
    const form = document.getElementById("sample-controls");
    const dialog = document.getElementById("sample");
    form.hidden = false;
    dialog.tabIndex = -1;
    form.addEventListener("input", () => update(form));
    form.addEventListener("submit", (event) => event.preventDefault());
    section().querySelector("tbody").addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row) open(Number(row.dataset.row));
    });
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
    dialog.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const next = step && shown[shown.indexOf(Number(dialog.dataset.row)) + step];
      if (next !== undefined && step) open(next);
    });
    const end = make("div", "end");
    section().querySelector(".wide").after(end);
    update(form);
    new IntersectionObserver(([seen]) => seen.isIntersecting && drawn < shown.length && more(), { rootMargin: "800px" }).observe(end);
    addEventListener("scroll", () => drawn < shown.length && end.getBoundingClientRect().top < innerHeight + 800 && more(), { passive: true });
    fromAddress(form);
    addEventListener("hashchange", () => fromAddress(form));
  }

  // The file of the data is loaded last and calls this.
  function receive(sent) {
    data = sent;
    start();
  }

  return { receive };
})();
