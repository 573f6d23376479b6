// One sample in detail: its three images, its margin or distance over the queries, and the scores before and after.
"use strict";

(() => {
  const { held, at, root, make, badge, thumbnail, classes, className, signed, foundAt, distance, loadDetails } = assay;
  const SVG = "http://www.w3.org/2000/svg";
  const percent = (value) => (value < 0.0001 ? "< 0.01 %" : `${(100 * value).toFixed(value < 0.01 ? 2 : 1)} %`);
  const logit = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value) < 1000 ? Math.abs(value).toFixed(2) : Math.abs(value).toPrecision(3)}`;
  const atMost = (value) => (value < 0.0001 ? percent(value) : `≤ ${percent(Math.min(value, 1))}`);

  function sentence(row) {
    const letter = held.data.outcome[row];
    if (letter === "w") return `Misclassified without an attack, as ${className(at("clean", row))}.`;
    if (letter === "b") {
      const when = foundAt(row) === "–" ? "" : ` at ${foundAt(row)}`;
      const stage = at("stage", row) ? ` by ${at("stage", row)}` : "";
      const bits = at("uint8", row) === null ? "" : at("uint8", row) ? " Still adversarial after rounding to 8 bits." : " Rounding to 8 bits undoes it.";
      return `Broken${when}${stage}, and verified on a fresh forward pass.${bits}`;
    }
    if (letter === "n") return `A claimed success was not verified: ${at("problem", row) ?? "no reason recorded"}. It counts as standing.`;
    const other = at("other", row);
    if (other !== null) return `This attack did not break it; ${held.data.others[other]} did.`;
    if (held.data.minimal && at("distance", row) !== null) return `Not broken: the nearest adversarial point that was found is ${distance(at("distance", row))} away, beyond the radius of ${distance(held.data.eps)}.`;
    return letter === "d" ? "Not broken, but in doubt: a stronger attack may still break it." : "No attack broke it.";
  }

  function pictures(row) {
    const made = make("div", "triplet");
    const factor = at("factor", row) ?? 0;
    if (factor) {
      const image = make("img");
      image.src = `${root()}${held.data.triplets}/${row}.png`;
      image.alt = `The original, the change magnified ${factor} times around grey, and the adversarial image`;
      const names = make("div", "facts");
      names.append(make("span", "", "original"), make("span", "", `change ×${factor}`), make("span", "", "adversarial"));
      made.append(image, names);
    } else {
      made.append(thumbnail(row));
      if (held.data.outcome[row] === "b") {
        made.append(make("p", "facts", held.data.triplets ? "Its adversarial image is left out to keep this report small." : "The run kept no adversarial images: run it with --keep-images to see them here."));
      }
    }
    return made;
  }

  // The softmax gives the predicted class and the margin its lead, so the other end of the margin follows.
  function leads(row) {
    const [truth, target] = [at("label", row), at("target", row)];
    const [p0, m0, p, m] = ["p0", "margin0", "p", "margin"].map((column) => at(column, row));
    const broken = held.data.outcome[row] === "b";
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
    if (target === null && held.data.outcome[row] !== "w") {
      add([`${className(truth)} (true)`, known(p0), end ? known(p * Math.exp(m)) : "–"]);
      if (end) add([className(at("adv", row)), p0 === null || m0 === null ? "–" : atMost(p0 * Math.exp(-m0)), known(p)]);
      else if (p0 !== null && m0 !== null) add(["best other class", known(p0 * Math.exp(-m0)), "–"]);
    } else if (target !== null) {
      add([`${className(at("clean", row))} (before)`, known(p0), "–"]);
      add([`${className(target)} (target)`, p0 === null || m0 === null ? "–" : known(p0 * Math.exp(-m0)), end ? known(p) : "–"]);
    } else add([className(at("clean", row)), known(p0), "–"]);
    if (held.data.minimal && !broken) add(["margin, in logits", signed(m0), "–"]); // it was met beyond the radius
    else add([broken ? "margin, in logits" : "lowest margin, in logits", signed(m0), signed(m)]);
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

  // Why margins between the first and the last are missing, by the letter of the sample's details.
  const MISSING = {
    o: "This run was made before margins were kept: only the first and the last are known.",
    l: "The service gives labels only, so there are no margins.",
    x: "Margins in between are left out to keep this report small.",
    k: "Margins in between could not be loaded.",
  };
  const letterOf = (row) => held.data.detail[row];

  function distanceWay(row, steps) {
    const byQuery = steps.every(([iteration]) => iteration === 0);
    return {
      label: "distance", unit: byQuery ? "query" : "iteration", line: held.data.eps, lineName: "radius", path: "step",
      points: steps.map(([iteration, query, far]) => [byQuery ? query : iteration, far, distance(far)]),
      text: `Distance of the nearest adversarial point found so far; the line is the radius, ${distance(held.data.eps)}.`,
    };
  }

  function tracedWay(row, queries, margins) {
    const points = queries.map((query, place) => [query, margins[place], signed(margins[place])]);
    const spent = at("queries", row) ?? 0;
    if (held.data.outcome[row] !== "b" && spent > queries.at(-1)) points.push([spent, margins.at(-1), signed(margins.at(-1))]);
    const below = held.data.outcome[row] !== "b" && margins.at(-1) < 0 ? " What was found below it was not verified." : "";
    return {
      label: "margin", unit: "query", line: 0, lineName: "decision boundary", path: "trace", points,
      text: `Lowest margin so far over the queries, on a logarithmic scale; a gradient step is one query. Below the line the decision changes.${below}`,
    };
  }

  // Points that the records hold: every better distance, the lowest margin so far, or the first and the last margin.
  function wayOf(row) {
    const steps = held.data.ways[row];
    if (steps) return distanceWay(row, steps);
    const [before, after] = [at("margin0", row), at("margin", row)];
    if (before === null || after === null || held.data.outcome[row] === "w") return null;
    const [queries, margins] = held.details[row] ?? [[], []];
    if (queries.length) return tracedWay(row, queries, margins);
    if (letterOf(row) === "l") return { points: [], text: MISSING.l };
    const broken = held.data.outcome[row] === "b" && at("iteration", row) !== null;
    const byQuery = broken ? !at("iteration", row) : !at("iterations", row);
    const end = broken ? at(byQuery ? "query" : "iteration", row) : at(byQuery ? "queries" : "iterations", row);
    const place = held.data.outcome[row] === "b" ? "where it succeeded" : "at the lowest point it reached";
    return {
      label: "margin", unit: byQuery ? "query" : "iteration", line: 0, lineName: "decision boundary", path: "unknown",
      points: [[0, before, signed(before)], [end ?? 1, after, signed(after)]],
      text: `Margin before the attack and ${place}; below the line the decision changes. ${MISSING[letterOf(row)]}`,
    };
  }

  const SHAPE = { width: 420, height: 224, left: 16, right: 16, top: 46, bottom: 46, under: 28 }; // room for labels

  // Powers of ten on a logarithmic axis, without those that would touch the last label.
  function ticks(way, first, end, x) {
    const inner = way.path === "trace" ? [1, 10, 100, 1000, 10000, 100000] : [];
    const room = 20 + 4 * String(end).length;
    return [first, ...inner.filter((value) => value < end && x(end) - x(value) > room), ...(end > first ? [end] : [])];
  }

  function drawAxis(chart, way, first, end, x) {
    const { width, height, left, right, bottom } = SHAPE;
    chart.add("line", { x1: left, x2: width - right, y1: height - bottom, y2: height - bottom, class: "axis" });
    for (const value of ticks(way, first, end, x)) {
      chart.add("line", { x1: x(value), x2: x(value), y1: height - bottom, y2: height - bottom + 4, class: "axis" });
      const anchor = value === first ? "start" : value === end ? "end" : "middle";
      chart.add("text", { x: x(value), y: height - bottom + 18, "text-anchor": anchor }, value.toLocaleString("en"));
    }
    chart.add("text", { x: width / 2, y: height - 8, "text-anchor": "middle", class: "title" }, way.unit === "query" ? "queries" : "iterations");
  }

  // Where a falling line of points crosses a level: the name of the level stands on the free side of it.
  function crossing(spots, level) {
    const after = spots.findIndex(([, py]) => py >= level);
    if (after < 1) return after < 0 ? Number.POSITIVE_INFINITY : spots[0][0];
    const [[ax, ay], [bx, by]] = [spots[after - 1], spots[after]];
    return ax + ((level - ay) / (by - ay)) * (bx - ax);
  }

  function draw(way) {
    const { width, height, left, right, top, bottom, under } = SHAPE;
    const xs = way.points.map(([x]) => x);
    const ys = [...way.points.map(([, y]) => y), way.line];
    const [low, high] = [Math.min(...ys), Math.max(...ys)];
    const [first, end] = [way.path === "step" ? Math.min(...xs) : 0, Math.max(...xs)];
    const scale = way.path === "trace" ? (value) => Math.log1p(value) : (value) => value - first;
    const x = (value) => left + (scale(value) / (scale(end) || 1)) * (width - left - right);
    const y = (value) => top + ((high - value) / (high - low || 1)) * (height - top - bottom - under);
    const chart = drawing(width, height);
    chart.setAttribute("class", "way");
    const told = `${way.label} from ${way.points[0][2]} to ${way.points.at(-1)[2]} at ${way.unit} ${end.toLocaleString("en")}`;
    chart.setAttribute("aria-label", told);
    chart.add("text", { x: left, y: 14, class: "title" }, way.label === "margin" ? "margin, in logits" : "distance");
    drawAxis(chart, way, first, end, x);
    const spots = way.points.map(([place, value]) => [x(place), y(value)]);
    const [[ax, ay], [bx, by]] = [spots[0], spots.at(-1)];
    const line = y(way.line);
    chart.add("line", { x1: left, x2: width - right, y1: line, y2: line, class: "limit" });
    const name = crossing(spots, line) > left + 150 ? { x: left, y: line + 16 } : { x: width - right, y: line - 6, "text-anchor": "end" };
    chart.add("text", { ...name, class: "title" }, way.lineName);
    const path = spots.map(([px, py], place) => (place === 0 ? `M${px} ${py}` : way.path === "step" ? `H${px} V${py}` : `L${px} ${py}`)).join(" ");
    chart.add("path", { d: path, class: way.path });
    for (const [px, py] of way.path === "trace" ? spots : [spots[0], spots.at(-1)]) chart.add("circle", { cx: px, cy: py, r: way.path === "trace" ? 2.5 : 4 });
    chart.add("text", { x: ax, y: ay - 9 }, way.points[0][2]);
    const below = by < line && by + 24 > line ? line + 18 : by + 19; // clear of the line
    if (spots.length > 1) chart.add("text", { x: bx, y: below, "text-anchor": "end" }, way.points.at(-1)[2]);
    return chart;
  }

  function wayChart(row) {
    const way = wayOf(row);
    if (way === null) return make("span");
    const figure = make("figure");
    if (way.points.length) figure.append(draw(way));
    figure.append(make("figcaption", "facts", way.text));
    return figure;
  }

  // The highest logits as bars on one scale for both lists; zero is where bars begin.
  function logitList(title, row, labels, logits, [low, high]) {
    const [truth, target, adversarial] = [at("label", row), at("target", row), at("adv", row)];
    const place = (value) => (100 * (value - low)) / (high - low || 1);
    const whole = make("div", "logits");
    const list = make("ol");
    labels.forEach((label, rank) => {
      const role = label === truth ? "truth" : label === target || label === adversarial ? "wrong" : "";
      const note = label === truth ? " (true)" : label === target ? " (target)" : "";
      const bar = make("i", role);
      bar.style.left = `${place(Math.min(0, logits[rank]))}%`;
      bar.style.width = `${place(Math.abs(logits[rank]) + low)}%`;
      const [track, line] = [make("span", "track"), make("li")];
      track.append(bar);
      line.append(make("span", "name", className(label) + note), track, make("span", "n", logit(logits[rank])));
      list.append(line);
    });
    whole.append(make("h4", "", title), list);
    return whole;
  }

  function logits(row) {
    const [, , cleanLabels = [], clean = [], endLabels = [], end = []] = held.details[row] ?? [];
    if (!clean.length) {
      const why = { o: "This run was made before logits were kept.", x: "Logits are left out to keep this report small.", l: "The service gives labels only, so there are no logits." };
      return [make("p", "facts", why[letterOf(row)] ?? "Logits could not be loaded.")];
    }
    const scale = [Math.min(0, ...clean, ...end), Math.max(0, ...clean, ...end)];
    const before = logitList("Highest logits of the clean image", row, cleanLabels, clean, scale);
    if (held.data.outcome[row] === "w" || !end.length) return [before];
    const where = held.data.outcome[row] === "b" ? "of the adversarial image" : held.data.minimal && at("distance", row) !== null ? "at the nearest point found" : "at the lowest margin";
    return [before, logitList(`Highest logits ${where}`, row, endLabels, end, scale)];
  }

  // Details arrive a moment after the dialog opens; until then their place is kept free.
  function fillDetails(parts, row) {
    const show = () => parts.replaceChildren(wayChart(row), leads(row), ...logits(row));
    if (letterOf(row) !== "k" || held.details[row]) return show();
    parts.replaceChildren(make("div", "awaited"));
    return loadDetails(row).then(show);
  }

  function open(row) {
    const dialog = document.getElementById("sample");
    const place = held.shown.indexOf(row);
    const title = make("h3", "", `Sample ${held.data.id[row]}: ${classes(row)}`);
    title.id = "sample-title";
    const bar = make("div", "dialog-bar");
    const button = (text, label, act, usable = true) => {
      const made = make("button", "", text);
      Object.assign(made, { type: "button", disabled: !usable });
      made.setAttribute("aria-label", label);
      made.addEventListener("click", act);
      bar.append(made);
    };
    button("‹", "Previous sample", () => open(held.shown[place - 1]), place > 0);
    button("›", "Next sample", () => open(held.shown[place + 1]), place >= 0 && place + 1 < held.shown.length);
    button("×", "Close", () => dialog.close());
    const head = make("div", "dialog-head");
    head.append(title, bar);
    const both = make("div", "dialog-parts");
    fillDetails(both, row);
    dialog.replaceChildren(head, badge(row), make("p", "", sentence(row)), pictures(row), both);
    dialog.dataset.row = row;
    if (!dialog.open) dialog.showModal();
    dialog.focus();
    history.replaceState(null, "", `#sample=${encodeURIComponent(held.data.id[row])}`);
  }

  assay.open = open;
})();
