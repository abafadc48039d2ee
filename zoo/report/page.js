"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  const key = (row, column) => {
    const cell = row.cells[column];
    const data = cell.querySelector("data");
    return data ? Number(data.value) : cell.textContent;
  };
  const order = (a, b) => {
    const numbers = [a, b].map((value) => typeof value === "number" && !Number.isNaN(value));
    if (numbers[0] && numbers[1]) return a - b;
    if (numbers[0] || numbers[1]) return 0;
    return String(a).localeCompare(String(b));
  };
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const falls = head.getAttribute("aria-sort") === "ascending";
      const rows = [...body.rows].map((row) => ({ row, value: key(row, column) }));
      const isNumeric = rows.some(({ value }) => typeof value === "number");
      const without = isNumeric ? rows.filter(({ value }) => typeof value !== "number" || Number.isNaN(value)) : [];
      const sorted = rows.filter((each) => !without.includes(each)).sort((a, b) => (falls ? -1 : 1) * order(a.value, b.value));
      body.append(...[...sorted, ...without].map(({ row }) => row));
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", falls ? "descending" : "ascending");
    });
  });
}
