// On every page: light or dark theme, sortable tables, search, copying. Without it all content is still shown.
"use strict";

(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const kept = (() => {
    try {
      return localStorage.getItem("assay-theme"); // some browsers allow no storage for files
    } catch {
      return null;
    }
  })();
  if (kept === "dark" || kept === "light") document.documentElement.dataset.theme = kept;

  const isDark = () => (document.documentElement.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const tell = () => document.dispatchEvent(new CustomEvent("assay-theme"));

  function startTheme() {
    const button = document.getElementById("theme");
    button.hidden = false;
    const name = () => button.setAttribute("aria-label", isDark() ? "Switch to light" : "Switch to dark");
    name();
    button.addEventListener("click", () => {
      document.documentElement.dataset.theme = isDark() ? "light" : "dark";
      try {
        localStorage.setItem("assay-theme", document.documentElement.dataset.theme);
      } catch {
        // The choice then lasts as long as the page.
      }
      name();
      tell();
    });
    dark.addEventListener("change", tell);
  }

  function valueOf(row, at) {
    const cell = row.cells[at];
    if (cell.dataset.v === undefined) return cell.textContent.trim().toLowerCase();
    const number = Number.parseFloat(cell.dataset.v);
    return Number.isNaN(number) ? null : number;
  }

  // Cells without a value come last either way; equals keep their order.
  function compare(one, other) {
    if (one === null || one === "") return other === null || other === "" ? 0 : 1;
    if (other === null || other === "") return -1;
    if (typeof one === "number" && typeof other === "number") return one - other;
    return String(one).localeCompare(String(other), "en", { numeric: true });
  }

  function startSorting(table) {
    const headings = [...table.tHead.rows[0].cells];
    headings.forEach((heading, at) => {
      heading.querySelector("button.sort")?.addEventListener("click", () => {
        const numbers = heading.matches(".n, .threat");
        const before = heading.getAttribute("aria-sort");
        const down = before === null ? numbers : before === "ascending";
        headings.forEach((other) => other.removeAttribute("aria-sort"));
        heading.setAttribute("aria-sort", down ? "descending" : "ascending");
        const body = table.tBodies[0];
        const rows = [...body.rows].map((row) => [valueOf(row, at), row]);
        const empty = (value) => value === null || value === "";
        rows.sort(([a], [b]) => (empty(a) || empty(b) || !down ? compare(a, b) : compare(b, a)));
        body.append(...rows.map(([, row]) => row));
      });
    });
  }

  function startControls(form) {
    form.hidden = false;
    const fields = form.elements;
    const chosen = `.${form.dataset.for}, #${form.dataset.for}`;
    const sections = [...document.querySelectorAll(chosen)];
    const rows = sections.flatMap((section) => [...section.querySelectorAll("tbody tr")]);
    const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));
    const update = () => {
      const wanted = fields.search.value.trim().toLowerCase().split(/\s+/);
      let shown = 0;
      for (const section of sections) {
        section.hidden = Boolean(fields.section?.value) && fields.section.value !== section.id;
        section.classList.toggle("with-each", Boolean(fields.each?.checked));
        for (const row of section.querySelectorAll("tbody tr")) {
          const text = texts.get(row);
          const fits = wanted.every((word) => text.includes(word));
          row.hidden = !fits || (Boolean(fields.unflagged?.checked) && row.dataset.unflagged === undefined);
          shown += Number(!row.hidden && !section.hidden);
        }
      }
      form.querySelector("output").textContent = `${shown} of ${rows.length} rows`;
    };
    form.addEventListener("input", update);
    form.addEventListener("submit", (event) => event.preventDefault());
    update();
  }

  // On a phone each row becomes a card, in which every cell needs the name of its column.
  function labelCells(table) {
    const names = [...(table.tHead?.rows[0]?.cells ?? [])].map((heading) =>
      heading.querySelector(".unseen") ? "" : heading.textContent.trim(),
    );
    if (!names.length) return;
    for (const row of table.tBodies[0].rows) {
      [...row.cells].forEach((cell, at) => at && names[at] && (cell.dataset.label = names[at]));
    }
    table.classList.add("carded");
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const field = document.createElement("textarea"); // some browsers give files no clipboard
      field.value = text;
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
  }

  function startCopying(element) {
    if (element.matches(".hash")) element.title = element.dataset.copy;
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "copy", textContent: "Copy" });
    button.addEventListener("click", async () => {
      await copy(element.dataset.copy);
      button.textContent = "Copied";
      setTimeout(() => (button.textContent = "Copy"), 1500);
    });
    if (element.matches("pre")) {
      const box = document.createElement("div");
      box.className = "command";
      element.replaceWith(box);
      box.append(element, button);
    } else element.after(button);
  }

  document.addEventListener("DOMContentLoaded", () => {
    startTheme();
    document.querySelectorAll("table").forEach(labelCells);
    document.querySelectorAll("[data-copy]").forEach(startCopying);
    document.querySelectorAll("table.sortable").forEach(startSorting);
    document.querySelectorAll("form.controls[data-for]").forEach(startControls);
  });
})();
