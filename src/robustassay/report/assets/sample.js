// One sample in detail: its three images, its margin or distance on the way, and the scores before and after.
"use strict";

(() => {
  const { held, at, root, make, badge, thumbnail, classes, className, signed, distance, foundAt } = assay;
  const SVG = "http://www.w3.org/2000/svg";
  const percent = (value) => (value < 0.0001 ? "< 0.01 %" : `${(100 * value).toFixed(value < 0.01 ? 2 : 1)} %`);
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

  // Points that the records hold: margins at the start and at the end, or every better distance.
  function wayOf(row) {
    const steps = held.data.ways[row];
    if (steps) {
      const byQuery = steps.every(([iteration]) => iteration === 0);
      return {
        label: "distance", unit: byQuery ? "query" : "iteration", line: held.data.eps, lineName: "radius", step: true,
        points: steps.map(([iteration, query, far]) => [byQuery ? query : iteration, far, distance(far)]),
      };
    }
    const [before, after] = [at("margin0", row), at("margin", row)];
    if (before === null || after === null || held.data.outcome[row] === "w") return null;
    const broken = held.data.outcome[row] === "b" && at("iteration", row) !== null;
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
      ? `Distance of the nearest adversarial point found so far; the line is the radius, ${distance(held.data.eps)}.`
      : `Margin before the attack and ${held.data.outcome[row] === "b" ? "where it succeeded" : "at the lowest point it reached"}; the line is the decision boundary. Records hold no margins in between.`;
    figure.append(chart, make("figcaption", "facts", how));
    return figure;
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
    both.append(wayChart(row), leads(row));
    dialog.replaceChildren(head, badge(row), make("p", "", sentence(row)), pictures(row), both);
    dialog.dataset.row = row;
    if (!dialog.open) dialog.showModal();
    dialog.focus();
    history.replaceState(null, "", `#sample=${encodeURIComponent(held.data.id[row])}`);
  }

  assay.open = open;
})();
