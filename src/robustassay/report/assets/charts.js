// Turns the data of each chart into options of ECharts. No number is computed here.
"use strict";

const assay = (() => {
  // The palette of Okabe and Ito: readable with all kinds of colour vision. Three of them have another shade in dark mode.
  const COLOURS = ["--robust", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "--sixth", "--ink"];
  const STYLES = ["solid", "dashed", "dotted"];
  const MARKS = ["circle", "rect", "triangle", "diamond", "pin", "arrow", "roundRect"];
  const special = {}; // kinds that start themselves
  const root = () => document.body.dataset.root;
  const escape = (text) => echarts.format.encodeHTML(String(text));
  const percent = (value) => `${(100 * value).toFixed(1)} %`;
  const spanned = ([value, low, high]) => `${percent(value)} (${(100 * low).toFixed(1)}–${(100 * high).toFixed(1)})`;
  const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const colour = (at) => COLOURS[at % COLOURS.length].replace(/^--.*/, (name) => css(name));

  const pen = document.createElement("canvas").getContext("2d");

  function textWidth(text, size = 12) {
    pen.font = `${size}px ${getComputedStyle(document.body).fontFamily}`;
    return pen.measureText(text).width;
  }

  // Shorten a name in its middle, since names of one family begin alike; the tooltip and the CSV hold the whole of it.
  function fit(text, width, size = 12) {
    if (textWidth(text, size) <= width) return text;
    const cut = (kept) => `${text.slice(0, Math.ceil(kept / 2))}…${text.slice(text.length - Math.floor(kept / 2))}`;
    let kept = text.length - 1;
    while (kept > 1 && textWidth(cut(kept), size) > width) kept -= 1;
    return cut(kept);
  }

  function base() {
    const text = { color: css("--ink"), fontFamily: getComputedStyle(document.body).fontFamily, fontSize: 13 };
    return {
      animation: false,
      textStyle: text,
      backgroundColor: "transparent",
      aria: { enabled: true },
      tooltip: {
        confine: true,
        backgroundColor: css("--raised"),
        borderColor: css("--line"),
        textStyle: text,
      },
      legend: { type: "scroll", bottom: 0, textStyle: text, pageTextStyle: text, pageIconColor: css("--link") },
      grid: { left: 64, right: 24, top: 24, bottom: 92 },
    };
  }

  function axis(name, more = {}) {
    return {
      name,
      nameLocation: "middle",
      nameGap: 32,
      nameTextStyle: { color: css("--muted"), fontSize: 13 },
      axisLabel: { color: css("--muted"), fontSize: 12, hideOverlap: true, ...(more.axisLabel ?? {}) },
      axisLine: { show: true, lineStyle: { color: css("--line") } },
      splitLine: { lineStyle: { color: css("--line"), opacity: 0.6 } },
      ...Object.fromEntries(Object.entries(more).filter(([key]) => key !== "axisLabel")),
    };
  }

  const rateAxis = (name) =>
    axis(name, { nameGap: 44, min: 0, max: 1, axisLabel: { formatter: (value) => `${Math.round(100 * value)} %` } });

  // ECharts has no error bars of its own; this is the way its handbook gives.
  function whiskers(name, data, at) {
    return {
      name,
      type: "custom",
      silent: true,
      z: 1,
      encode: { x: 0, y: [1, 2] },
      data,
      itemStyle: { color: colour(at) },
      renderItem: (_, api) => {
        const [x, low] = api.coord([api.value(0), api.value(1)]);
        const [, high] = api.coord([api.value(0), api.value(2)]);
        const style = { stroke: colour(at), lineWidth: 1.2 };
        const line = (x1, y1, x2, y2) => ({ type: "line", shape: { x1, y1, x2, y2 }, style });
        return {
          type: "group",
          children: [line(x, low, x, high), line(x - 4, low, x + 4, low), line(x - 4, high, x + 4, high)],
        };
      },
    };
  }

  // A confidence band: an invisible line at the lower end, and an area stacked on it.
  function band(name, id, x, low, high, shade, step = false) {
    const quiet = { symbol: "none", silent: true, tooltip: { show: false }, itemStyle: { color: shade }, z: 1 };
    const unseen = { name, type: "line", stack: id, stackStrategy: "all", step, ...quiet };
    const height = high.map((value, row) => value - low[row]);
    return [
      { ...unseen, lineStyle: { opacity: 0 }, data: x.map((place, row) => [place, low[row]]) },
      {
        ...unseen,
        lineStyle: { opacity: 0 },
        areaStyle: { color: shade, opacity: 0.14 },
        data: x.map((place, row) => [place, height[row]]),
      },
    ];
  }

  function ordered(names, how) {
    const places = names.map((_, at) => at);
    const text = (at) => (how === "family" ? `${names[at].family} ${names[at].name}` : names[at].name);
    return how === "given" ? places : places.sort((one, other) => text(one).localeCompare(text(other)));
  }

  function heatOption(data, how = "given", chartWidth = 1000) {
    const [sources, targets] = [ordered(data.sources, how), ordered(data.targets, how)];
    const cells = data.cells.map(([target, source, value, low, high, page]) => ({
      value: [targets.indexOf(target), sources.indexOf(source), value], rate: [value, low, high], page,
    }));
    const common = base();
    const named = (names, order) => order.map((at) => names[at].name);
    const ticks = { axisLabel: { interval: 0, hideOverlap: false, fontSize: 12, width: chartWidth > 420 ? 132 : 84, overflow: "truncate" } };
    return {
      ...common,
      grid: { left: chartWidth > 420 ? 150 : 100, right: 24, top: 16, bottom: 150 },
      tooltip: {
        ...common.tooltip,
        formatter: ({ data: { value, rate } }) => {
          const ends = `crafted on ${escape(data.sources[sources[value[1]]].name)}<br>shown to ${escape(data.targets[targets[value[0]]].name)}`;
          return `${ends}<br><strong>${rate[1] === null ? percent(rate[0]) : spanned(rate)}</strong>`;
        },
      },
      xAxis: {
        ...axis("", { type: "category", data: named(data.targets, targets), splitLine: { show: false } }),
        axisLabel: { ...ticks.axisLabel, rotate: 40, color: css("--muted") },
      },
      yAxis: {
        ...axis("", { type: "category", data: named(data.sources, sources), inverse: true, splitLine: { show: false } }),
        axisLabel: { ...ticks.axisLabel, color: css("--muted") },
      },
      visualMap: {
        min: 0, max: 1, orient: "horizontal", left: "center", bottom: 0, calculable: true, precision: 2,
        formatter: (value) => `${Math.round(100 * value)} %`,
        textStyle: { color: css("--ink") },
        inRange: { color: ["#00224e", "#35456c", "#666970", "#948e77", "#c8b866", "#fee838"] }, // cividis
      },
      series: [
        {
          type: "heatmap",
          data: cells.map((cell) => ({ ...cell, label: { color: cell.value[2] < 0.55 ? "#fff" : "#000" } })),
          label: { show: cells.length <= 400, fontSize: 12, formatter: ({ value }) => Math.round(100 * value[2]) },
          emphasis: { itemStyle: { borderColor: css("--ink"), borderWidth: 2 } },
        },
      ],
    };
  }

  const heatRows = (data) => [
    ["crafted on", "shown to", "rate", "low", "high"],
    ...data.cells.map(([target, source, ...rates]) => [
      data.sources[source].name, data.targets[target].name, ...rates.slice(0, 3),
    ]),
  ];

  function reliabilityOption(data) {
    const common = base();
    return {
      ...common,
      tooltip: {
        ...common.tooltip,
        formatter: ({ data: { value, images } }) =>
          images ? `confidence ${percent(value[0])}<br>accuracy ${percent(value[1])}<br>${images} images` : "",
      },
      xAxis: { ...rateAxis("confidence"), nameGap: 32 },
      yAxis: rateAxis("accuracy"),
      series: [
        {
          name: "perfect calibration", type: "line", symbol: "none", silent: true, data: [[0, 0], [1, 1]],
          lineStyle: { type: "dashed", color: css("--muted") }, itemStyle: { color: css("--muted") },
        },
        {
          name: "model, by confidence", type: "line", itemStyle: { color: colour(0) }, lineStyle: { color: colour(0) },
          data: data.bins.map(([confidence, accuracy, images]) => ({
            value: [confidence, accuracy], images, symbol: "circle", symbolSize: 6 + 22 * Math.sqrt(images / data.images),
          })),
        },
      ],
    };
  }

  const reliabilityRows = (data) => [["confidence", "accuracy", "images"], ...data.bins];

  const KINDS = {
    heat: [heatOption, heatRows],
    reliability: [reliabilityOption, reliabilityRows],
  };

  function quoted(cell) {
    const text = cell === null || cell === undefined ? "" : String(cell);
    // A spreadsheet would run a cell that begins like a formula.
    const safe = typeof cell === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }

  const csv = (rows) => rows.map((row) => row.map(quoted).join(",")).join("\r\n") + "\r\n";

  function save(name, href) {
    const link = document.createElement("a");
    link.download = name;
    link.href = href;
    link.click();
  }

  function saveText(name, type, text) {
    const address = URL.createObjectURL(new Blob([text], { type }));
    save(name, address);
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  function toSvg(chart, option) {
    const drawn = echarts.init(null, null, { renderer: "svg", ssr: true, width: chart.getWidth(), height: chart.getHeight() });
    drawn.setOption({ ...option, backgroundColor: css("--paper") });
    drawn.setOption({ series: chart.getOption().series }); // with names where they were placed
    const selected = chart.getOption().legend?.[0]?.selected;
    if (selected) drawn.setOption({ legend: { selected } });
    const text = drawn.renderToSVGString();
    drawn.dispose();
    return text;
  }

  function tools(figure, chart, current) {
    const bar = figure.querySelector(".tools");
    const add = (name, act) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = name;
      button.addEventListener("click", act);
      bar.append(button);
    };
    const file = document.title.split(" · ")[0].replace(/[^\w-]+/g, "-").toLowerCase() || "chart";
    add("PNG", () => save(`${file}.png`, chart.getDataURL({ type: "png", pixelRatio: 2, backgroundColor: css("--paper") })));
    add("SVG", () => saveText(`${file}.svg`, "image/svg+xml", toSvg(chart, current.option())));
    add("CSV", () => saveText(`${file}.csv`, "text/csv", csv(current.rows())));
    bar.hidden = false;
    return bar;
  }

  function start(figure, current, height) {
    const canvas = figure.querySelector(".canvas");
    canvas.style.height = `${height}px`;
    const chart = echarts.init(canvas);
    const draw = (anew) => {
      chart.setOption(current.option(), anew);
      current.place?.(chart);
    };
    draw(true);
    chart.on("click", ({ data }) => {
      if (data?.page) location.href = root() + data.page;
    });
    new ResizeObserver(() => {
      if (canvas.clientWidth === chart.getWidth()) return;
      chart.resize();
      draw(false); // keeps what the user toggled
    }).observe(canvas);
    document.addEventListener("assay-theme", () => draw(true));
    addEventListener("beforeprint", () => chart.resize());
    figure.chart = chart;
    return { chart, bar: tools(figure, chart, current) };
  }

  function startHeat(figure, data) {
    let how = "given";
    figure.style.maxWidth = `${340 + 110 * data.targets.length}px`; // a cell is not much wider than its number
    const current = { option: () => heatOption(data, how, figure.clientWidth), rows: () => heatRows(data) };
    const { chart, bar } = start(figure, current, 230 + 30 * data.sources.length);
    const label = document.createElement("label");
    label.textContent = "Order ";
    const select = document.createElement("select");
    for (const name of ["given", "name", "family"]) select.add(new Option(name === "given" ? "as given" : `by ${name}`, name));
    select.addEventListener("change", () => {
      how = select.value;
      chart.setOption(current.option(), true);
    });
    label.append(select);
    bar.prepend(label);
  }

  document.addEventListener("DOMContentLoaded", () => {
    for (const figure of document.querySelectorAll("figure.chart")) {
      const data = JSON.parse(figure.querySelector("script").textContent);
      if (special[data.kind]) special[data.kind](figure, data);
      else {
        const [option, rows] = KINDS[data.kind];
        const canvas = figure.querySelector(".canvas");
        start(figure, { option: () => option(data, canvas.clientWidth), rows: () => rows(data) }, 380);
      }
    }
  });

  special.heat = startHeat;
  return { special, start, fit, textWidth, base, axis, rateAxis, band, whiskers, colour, escape, percent, spanned, css, root, MARKS, STYLES, COLOURS };
})();
