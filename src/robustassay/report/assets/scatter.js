// Accuracy against robustness: one point per model, with its name where there is room.
"use strict";

(() => {
  const { base, axis, rateAxis, band, whiskers, colour, escape, percent, spanned, css, fit, textWidth, MARKS } = assay;
  const MOST_NAMES = 30; // beyond, only those on the frontier are written beside their points
  const LABEL_WIDTH = 220;

  function scatterOption(data, chartWidth) {
    const families = [...new Set(data.points.map((point) => point.family))].sort();
    const series = families.flatMap((family, at) => {
      const own = data.points.filter((point) => point.family === family);
      return [
        {
          name: family,
          type: "scatter",
          symbol: MARKS[at % MARKS.length],
          symbolSize: 12,
          itemStyle: { color: colour(at) },
          data: own.map((point) => ({ name: point.name, value: [point.x, point.y[0]], rate: point.y, page: point.page })),
          z: 4,
        },
        whiskers(family, own.map((point) => [point.x, point.y[1], point.y[2]]), at),
      ];
    });
    const edge = data.points.filter((point) => point.frontier);
    series.push({
      name: "on the frontier",
      type: "scatter",
      symbolSize: 22,
      silent: true,
      itemStyle: { color: "transparent", borderColor: css("--ink"), borderWidth: 1.5 },
      data: edge.map((point) => [point.x, point.y[0]]),
      z: 3,
    });
    if (data.law) {
      const { x, y, low, high } = data.law;
      const law = { name: "law, all models", type: "line", symbol: "none", silent: true, data: x.map((v, i) => [v, y[i]]) };
      series.push(...band("law, all models", "law", x, low, high, css("--muted")));
      series.push({ ...law, lineStyle: { color: css("--muted") }, itemStyle: { color: css("--muted") } });
    }
    const common = base();
    const top = Math.min(1, Math.ceil(10.5 * Math.max(...data.points.map((point) => point.y[2]))) / 10);
    const [first, last] = [Math.floor(20 * data.ends[0]) / 20, Math.min(1, Math.ceil(20 * data.ends[1]) / 20)];
    return {
      ...common,
      grid: { ...common.grid, right: chartWidth > 600 ? 60 : 24 },
      tooltip: {
        ...common.tooltip,
        formatter: ({ data: { name, value, rate } }) =>
          rate ? `<strong>${escape(name)}</strong><br>clean ${percent(value[0])}<br>robust ${spanned(rate)}` : "",
      },
      xAxis: axis("clean accuracy", {
        min: first, max: last, axisLabel: { formatter: (value) => `${Number((100 * value).toFixed(1))} %` },
      }),
      yAxis: { ...rateAxis("robust accuracy"), max: top },
      series,
    };
  }

  const meets = (one, other) =>
    one.x < other.x + other.width && other.x < one.x + one.width && one.y < other.y + other.height && other.y < one.y + one.height;

  // Write names beside their points where there is room: no name covers a point, an interval or another name.
  function placeNames(chart, data) {
    const [width, height] = [chart.getWidth(), chart.getHeight() - 92];
    const pixel = (x, y) => chart.convertToPixel("grid", [x, y]);
    const spots = data.points.map((point) => pixel(point.x, point.y[0]));
    const taken = spots.map(([x, y]) => ({ x: x - 11, y: y - 11, width: 22, height: 22 }));
    data.points.forEach((point) => {
      const [[x, low], [, high]] = [pixel(point.x, point.y[1]), pixel(point.x, point.y[2])];
      taken.push({ x: x - 5, y: high - 4, width: 10, height: low - high + 8 });
    });
    const most = Math.min(LABEL_WIDTH, width / 3);
    const labels = new Map();
    const named = data.points.filter((point) => point.frontier || data.points.length <= MOST_NAMES);
    for (const point of [...named].sort((one, other) => Number(other.frontier) - Number(one.frontier))) {
      const [x, y] = spots[data.points.indexOf(point)];
      const text = fit(point.name, most);
      const size = { width: textWidth(text) + 10, height: 16 };
      const right = [14, -14 - size.width].flatMap((dx) => [-8, -20, 4, -32, 16].map((dy) => [dx, dy]));
      // Where both sides are taken: above or below the interval.
      const left = Math.max(66, Math.min(x - size.width / 2, width - size.width - 4)) - x;
      const [[, low], [, high]] = [pixel(point.x, point.y[1]), pixel(point.x, point.y[2])];
      const top = Math.min(high, y - 8) - y;
      const above = [top - 21, top - 37, Math.max(low, y + 8) - y + 6].map((dy) => [left, dy]);
      const found = [...right, ...above].find(([dx, dy]) => {
        const box = { x: x + dx, y: y + dy, ...size };
        return box.x > 64 && box.x + box.width < width && box.y > 4 && box.y + box.height < height && !taken.some((other) => meets(box, other));
      });
      if (!found) continue;
      taken.push({ x: x + found[0], y: y + found[1], ...size });
      labels.set(point.name, { show: true, formatter: () => text, position: [found[0] + 6, found[1] + 8], color: css("--ink"), fontSize: 12 });
    }
    const series = chart.getOption().series.map((one) => ({
      data: one.type === "scatter" ? one.data.map((item) => (item.rate ? { ...item, label: labels.get(item.name) ?? { show: false } } : item)) : one.data,
    }));
    chart.setOption({ series });
  }

  const scatterRows = (data) => [
    ["model", "family", "clean accuracy", "robust accuracy", "low", "high", "on the frontier"],
    ...data.points.map((point) => [point.name, point.family, point.x, ...point.y, point.frontier]),
  ];

  assay.special.scatter = (figure, data) =>
    assay.start(figure, {
      option: () => scatterOption(data, figure.clientWidth), rows: () => scatterRows(data), place: (chart) => placeNames(chart, data),
    }, 480);
})();
