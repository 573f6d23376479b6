// The page of curves: loads the selected curves, and draws the selected models and attacks.
"use strict";

(() => {
  const { base, axis, rateAxis, band, colour, escape, spanned, css, root, start, fit, textWidth } = assay;
  const { MARKS, STYLES, COLOURS } = assay;
  const MOST_CURVES = 16; // as many as have room for their names
  const HEIGHT = 460;
  const [TOP, BOTTOM] = [24, 56];
  const LINE = 17; // height of a name
  const waiting = new Map();
  const sheets = new Map();

  // What all curves share is left out of their names.
  function labels(curves, models) {
    const [names, ways] = [curves.map((curve) => models[curve.model].name), curves.map((curve) => curve.attack)];
    if (new Set(ways).size === 1) return names;
    return new Set(names).size === 1 ? ways : names.map((name, at) => `${name}, ${ways[at]}`);
  }

  // Heights of the names at the ends of the curves: as near as possible, one above the other, none below the axis.
  function labelHeights(ends) {
    const order = ends.map((_, at) => at).sort((one, other) => ends[other] - ends[one]);
    const places = order.map((at) => TOP + (1 - ends[at]) * (HEIGHT - TOP - BOTTOM));
    for (let at = 1; at < places.length; at += 1) places[at] = Math.max(places[at], places[at - 1] + LINE);
    let lowest = HEIGHT - BOTTOM - 6;
    for (let at = places.length - 1; at >= 0; at -= 1) {
      places[at] = Math.min(places[at], lowest);
      lowest = places[at] - LINE;
    }
    return ends.map((_, at) => places[order.indexOf(at)]);
  }

  function curveOption(state, width) {
    const { sheet, curves, models, measure, log, bands } = state;
    const end = Math.max(...curves.map((curve) => curve.end), log ? 0 : 1e-9);
    const positive = curves.flatMap((curve) => curve.x.filter((place) => place > 0));
    const start = log ? Math.min(...positive, end) : 0;
    const named = labels(curves, models);
    const most = Math.min(240, 0.32 * width);
    const texts = named.map((name) => fit(name, most));
    const room = 26 + Math.max(0, ...texts.map((text) => textWidth(text)));
    const shownAt = (curve) => curve[measure][0].findLast((_, row) => curve.points || curve.x[row] <= end) ?? 0;
    const heights = labelHeights(curves.map(shownAt));
    const series = curves.flatMap((curve, at) => {
      const name = named[at];
      const rows = curve.x.map((_, row) => row).filter((row) => (!log || curve.x[row] > 0) && (curve.points || curve.x[row] <= end));
      let x = rows.map((row) => curve.x[row]);
      let [value, low, high] = curve[measure].map((column) => rows.map((row) => column[row]));
      const shown = { color: colour(at) };
      if ((curve.flat || curve.x.at(-1) > end) && !curve.points && x.length && x.at(-1) < end) {
        x = [...x, end];
        [value, low, high] = [value, low, high].map((column) => [...column, column.at(-1)]);
      }
      const step = curve.exact && !curve.points ? "end" : false;
      const line = {
        name,
        type: "line",
        symbol: curve.points ? MARKS[at % MARKS.length] : "circle",
        symbolSize: curve.points ? 9 : 5,
        showSymbol: Boolean(curve.points),
        step,
        itemStyle: shown,
        lineStyle: { width: 2, type: curve.points ? "dashed" : STYLES[Math.floor(at / COLOURS.length) % STYLES.length], ...shown },
        endLabel: { show: true, formatter: () => `{mark|●} ${texts[at]}`, color: css("--ink"), fontSize: 12, lineHeight: 17, rich: { mark: shown } },
        labelLayout: { x: width - room + 8, y: heights[at], align: "left", verticalAlign: "middle" },
        data: x.map((place, row) => ({ value: [place, value[row]], rate: [value[row], low[row], high[row]], page: curve.page })),
        z: 3,
      };
      return [...(bands ? band(name, `band-${at}`, x, low, high, colour(at), step) : []), line];
    });
    const common = base();
    return {
      ...common,
      tooltip: {
        ...common.tooltip,
        trigger: "axis",
        axisPointer: { type: "line", lineStyle: { color: css("--muted") } },
        formatter: (near) => {
          const found = near.filter(({ data }) => data.rate);
          const lines = found.map(
            ({ marker, seriesName, data }) =>
              `${marker} ${escape(seriesName)} at ${escape(data.value[0])}: <strong>${spanned(data.rate)}</strong>`,
          );
          return found.length ? [`${escape(sheet.axis)}`, ...lines].join("<br>") : "";
        },
      },
      xAxis: axis(sheet.axis, { type: log ? "log" : "value", min: start, max: end, axisLabel: { showMaxLabel: false } }),
      yAxis: rateAxis(measure === "a" ? "accuracy under attack" : "attack success rate"),
      legend: { show: false },
      grid: { left: 64, right: room, top: TOP, bottom: BOTTOM },
      dataZoom: [{ type: "inside", filterMode: "none" }],
      series,
    };
  }

  function curveRows({ sheet, curves, models, measure }) {
    const heading = ["model", "attack", sheet.versus === "eps" ? sheet.axis : sheet.versus];
    const rows = curves.flatMap((curve) =>
      curve.x.map((place, row) => [
        models[curve.model].name, curve.attack, place, ...curve[measure].map((column) => column[row]), curve.n,
      ]),
    );
    return [[...heading, measure === "a" ? "accuracy" : "success", "low", "high", "samples"], ...rows];
  }

  function load(name) {
    if (sheets.has(name)) return Promise.resolve(sheets.get(name));
    return new Promise((done) => {
      waiting.set(name, done);
      const script = document.createElement("script");
      script.src = `${root()}data/${name}.js`;
      document.head.append(script);
    });
  }

  // Rates are stored as multiples of 1/10000, which take fewer bytes.
  function receive(name, sent) {
    const rates = (columns) => columns.map((column) => column.map((value) => value / 10000));
    const curves = sent.map((curve) => ({ ...curve, a: rates(curve.a), s: rates(curve.s) }));
    sheets.set(name, curves);
    waiting.get(name)?.(curves);
    waiting.delete(name);
  }

  function fill(fieldset, names, ticked, changed) {
    fieldset.querySelectorAll("div").forEach((old) => old.remove());
    const box = document.createElement("div");
    for (const [value, name] of names) {
      const label = document.createElement("label");
      const input = document.createElement("input");
      Object.assign(input, { type: "checkbox", value, checked: ticked.has(value) });
      input.addEventListener("change", changed);
      label.append(input, ` ${name}`);
      box.append(label);
    }
    fieldset.append(box);
  }

  const checked = (fieldset) => new Set([...fieldset.querySelectorAll("input:checked")].map((input) => input.value));

  function startCurves(figure, index) {
    const form = document.getElementById("curve-controls");
    const [models, attacks] = ["pick-models", "pick-attacks"].map((id) => document.getElementById(id));
    const note = document.getElementById("curve-note");
    const fields = form.elements;
    let state = { sheet: index.sheets[0], curves: [], models: index.models, measure: "a", log: false, bands: true };
    const current = { option: () => curveOption(state, figure.clientWidth), rows: () => curveRows(state) };
    let drawn = null;
    const first = index.sheets.reduce((best, sheet) => (sheet.models > best.models ? sheet : best)); // most to compare
    for (const versus of new Set(index.sheets.map((sheet) => sheet.versus))) fields.versus.add(new Option(versus === "eps" ? "radius" : versus, versus));
    const listSheets = () => {
      fields.sheet.replaceChildren();
      for (const sheet of index.sheets) if (sheet.versus === fields.versus.value) fields.sheet.add(new Option(sheet.title, sheet.name));
    };
    const draw = () => {
      const [some, ways] = [checked(models), checked(attacks)];
      const all = sheets.get(state.sheet.name).filter((one) => some.has(String(one.model)) && ways.has(one.attack));
      const curves = all.slice(0, MOST_CURVES);
      state = { ...state, curves, measure: fields.measure.value, log: fields.log.checked, bands: fields.bands.checked };
      note.textContent = all.length > MOST_CURVES ? `The first ${MOST_CURVES} of ${all.length} curves are drawn.` : `${all.length} ${all.length === 1 ? "curve" : "curves"}.`;
      if (drawn) drawn.setOption(current.option(), true);
      else drawn = start(figure, current, HEIGHT).chart;
    };
    const change = async () => {
      const sheet = index.sheets.find((one) => one.name === fields.sheet.value);
      const curves = await load(sheet.name);
      state = { ...state, sheet };
      const present = [...new Set(curves.map((one) => one.model))];
      const ways = [...new Set(curves.map((one) => one.attack))];
      const line = ways.find((way) => curves.some((one) => one.attack === way && !one.points)) ?? ways[0];
      const wanted = new URLSearchParams(location.hash.slice(1)).get("model");
      const asked = present.filter((at) => index.models[at].page === wanted);
      const some = new Set((asked.length ? asked : present.slice(0, 6)).map(String));
      fill(models, present.map((at) => [String(at), index.models[at].name]), some, draw);
      fill(attacks, ways.map((way) => [way, way]), new Set(asked.length ? ways : [ways[0], line]), draw);
      draw();
    };
    fields.versus.addEventListener("change", () => (listSheets(), change()));
    fields.sheet.addEventListener("change", change);
    for (const name of ["measure", "log", "bands"]) fields[name].addEventListener("change", draw);
    form.addEventListener("submit", (event) => event.preventDefault());
    fields.versus.value = first.versus;
    listSheets();
    fields.sheet.value = first.name;
    change();
  }

  assay.receive = receive;
  assay.special.curves = startCurves;
})();
