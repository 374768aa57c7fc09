// Sorts a table by the column whose header is clicked; a second click reverses the order.
"use strict";

const value = (row, column) => row.children[column].dataset.value;

const compare = (one, other) =>
  Number.isNaN(Number(one)) || Number.isNaN(Number(other))
    ? one.localeCompare(other)
    : Number(one) - Number(other);

const name = (header) => header.textContent.toLowerCase();

const sort = (table, header, column) => {
  // Rank, name and letters ascend first, measured values descend.
  const measured = !["rank", "method", "letters"].includes(name(header));
  const before = header.getAttribute("aria-sort");
  const ascending = before ? before === "descending" : !measured;
  const sign = ascending ? 1 : -1;
  const body = table.tBodies[0];
  const rows = [...body.rows].sort((a, b) => {
    const [one, other] = [value(a, column), value(b, column)];
    if (one === "" || other === "") return (one === "") - (other === ""); // missing values last
    return sign * compare(one, other);
  });
  body.append(...rows);
  for (const each of table.querySelectorAll("th[aria-sort]")) each.removeAttribute("aria-sort");
  header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
};

for (const table of document.querySelectorAll("table.sortable"))
  for (const button of table.querySelectorAll("th button"))
    button.addEventListener("click", () =>
      sort(table, button.closest("th"), Number(button.dataset.column)),
    );
