// The samples of a run: a list that is filled while it is scrolled, with filters; sample.js shows one of them.
"use strict";

const assay = (() => {
  const BATCH = 60; // rows added at once: a list of 10,000 opens as fast as one of 60
  const ACROSS = 10; // small pictures per row of a sheet
  const NAMES = { b: "broken", s: "standing", d: "in doubt", n: "not verified", w: "misclassified" };
  const COLUMNS = ["Sample", "Outcome", "Class", "Margin", "Distance", "Found at"];
  const SORTS = {
    near: "nearest to the boundary", order: "order of the data", margin: "lowest margin", distance: "smallest distance", effort: "found first",
  };
  let data = null;
  let shown = []; // numbers of the rows that fit the filters, in order
  let drawn = 0;

  const root = () => document.body.dataset.root;
  const section = () => document.getElementById("samples");
  const at = (column, row) => data[column]?.[row] ?? null;
  const className = (label) => (label === null ? "–" : (data.classes[label] ?? String(label)));
  const signed = (value) => (value === null ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(value).toPrecision(3)}`);

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

  function fromAddress(form) {
    const asked = new URLSearchParams(location.hash.slice(1));
    if (asked.has("show")) {
      form.elements.outcome.value = asked.get("show");
      update(form);
      section().scrollIntoView();
    }
    const row = asked.has("sample") ? data.id.indexOf(asked.get("sample")) : -1;
    if (row >= 0) assay.open(row);
  }

  // The filters and the empty table; pages of runs hold what differs between them only.
  function build() {
    const counts = JSON.parse(section().dataset.counts);
    const total = counts.reduce((sum, [, many]) => sum + many, 0);
    const form = make("form", "controls");
    form.id = "sample-controls";
    const chips = make("fieldset", "chips");
    chips.append(make("legend", "unseen", "Outcome"));
    for (const [letter, many] of [["", total], ...counts]) {
      const chip = make("label");
      const box = Object.assign(make("input"), { type: "radio", name: "outcome", value: letter, defaultChecked: !letter, disabled: Boolean(letter) && !many });
      const name = NAMES[letter] ?? "all";
      const text = make("span", "", `${name[0].toUpperCase()}${name.slice(1)} `);
      text.append(make("b", "", many.toLocaleString("en")));
      chip.append(box, text);
      chips.append(chip);
    }
    const sort = Object.assign(make("select"), { name: "sort" });
    for (const [value, name] of Object.entries(SORTS)) sort.add(new Option(name, value));
    const search = Object.assign(make("input"), { type: "search", name: "search", placeholder: "class or sample" });
    const found = make("output");
    found.setAttribute("aria-live", "polite");
    const named = (name, field) => {
      const label = make("label", "", `${name} `);
      label.append(field);
      return label;
    };
    form.append(chips, named("Sort", sort), named("Search", search), found);
    const head = make("tr");
    COLUMNS.forEach((name, at) => head.append(Object.assign(make("th", at > 2 ? "n" : "", name), { scope: "col" })));
    const table = make("table", "samples carded");
    table.append(make("caption", "unseen", "Samples of this run"), make("thead"), make("tbody"));
    table.tHead.append(head);
    const region = Object.assign(make("div", "wide"), { role: "region", tabIndex: 0, ariaLabel: "Samples of this run" });
    region.append(table);
    section().querySelector("dialog").before(form, region);
    return form;
  }

  function start() {
    const form = build();
    const dialog = document.getElementById("sample");
    dialog.tabIndex = -1;
    form.addEventListener("input", () => update(form));
    form.addEventListener("submit", (event) => event.preventDefault());
    section().querySelector("tbody").addEventListener("click", (event) => {
      const row = event.target.closest("tr");
      if (row) assay.open(Number(row.dataset.row));
    });
    dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
    dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname + location.search));
    dialog.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const next = step && shown[shown.indexOf(Number(dialog.dataset.row)) + step];
      if (next !== undefined && step) assay.open(next);
    });
    const end = make("div", "end");
    section().querySelector(".wide").after(end);
    update(form);
    new IntersectionObserver(([seen]) => seen.isIntersecting && drawn < shown.length && more(), { rootMargin: "800px" }).observe(end);
    addEventListener("scroll", () => drawn < shown.length && end.getBoundingClientRect().top < innerHeight + 800 && more(), { passive: true });
    fromAddress(form);
    addEventListener("hashchange", () => fromAddress(form));
  }

  // Margins and logits come in files of many samples each, when one of them is opened; each file calls this.
  const details = {};
  const receiveDetails = (sent) => Object.assign(details, sent);
  const loading = {};

  function loadDetails(row) {
    const number = Math.floor(row / data.chunk);
    loading[number] ??= new Promise((done) => {
      const script = document.createElement("script");
      script.src = `${root()}data/${data.name}/${number}.js`;
      script.addEventListener("load", done);
      script.addEventListener("error", done);
      document.head.append(script);
    });
    return loading[number];
  }

  // The file of the data is loaded last and calls this.
  function receive(sent) {
    data = sent;
    start();
  }

  const held = { details, get data() { return data; }, get shown() { return shown; } };
  return { receive, receiveDetails, loadDetails, held, at, root, make, badge, thumbnail, classes, className, signed, distance, foundAt };
})();
