// Sorts a table by the column whose head is pressed; again, and it is the other way round.
"use strict";

const value = (row, column) => row.children[column].dataset.value;

const compare = (one, other) =>
  Number.isNaN(Number(one)) || Number.isNaN(Number(other))
    ? one.localeCompare(other)
    : Number(one) - Number(other);

const sort = (table, head, column) => {
  const numbers = column > 1; // rank and name go up, what is measured comes down
  const before = head.getAttribute("aria-sort");
  const ascending = before ? before === "descending" : !numbers;
  const sign = ascending ? 1 : -1;
  const body = table.tBodies[0];
  const rows = [...body.rows].sort((a, b) => {
    const [one, other] = [value(a, column), value(b, column)];
    if (one === "" || other === "") return (one === "") - (other === ""); // what is not there, last
    return sign * compare(one, other);
  });
  body.append(...rows);
  for (const each of table.querySelectorAll("th[aria-sort]")) each.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
};

for (const table of document.querySelectorAll("table.sortable"))
  for (const button of table.querySelectorAll("th button"))
    button.addEventListener("click", () =>
      sort(table, button.closest("th"), Number(button.dataset.column)),
    );
