"use strict";
// Sorting and filtering of the list; the page is complete without it.
const list = document.getElementById("utterances");
const rows = Array.from(list.children);
const find = document.getElementById("find");
const picks = Array.from(document.querySelectorAll("#controls select"));
const shown = document.getElementById("shown");
const texts = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

function filter() {
  const words = find.value.toLowerCase().split(/\s+/).filter(Boolean);
  let count = 0;
  for (const row of rows) {
    const fits = words.every((word) => texts.get(row).includes(word)) &&
      picks.every((pick) => pick.value === "" || row.dataset[pick.name] === pick.value);
    row.hidden = !fits;
    count += fits;
  }
  shown.textContent = count + " of " + rows.length + " listed utterances";
}

function sort(button) {
  const rising = button.getAttribute("aria-sort") !== "ascending";
  for (const other of document.querySelectorAll("#heads button")) other.removeAttribute("aria-sort");
  button.setAttribute("aria-sort", rising ? "ascending" : "descending");
  const key = button.dataset.key;
  const number = button.dataset.kind === "number";
  const value = (row) => (number ? parseFloat(row.dataset[key]) : row.dataset[key]);
  const sorted = rows.slice().sort((a, b) => {
    const x = value(a), y = value(b);
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    return (x < y ? -1 : x > y ? 1 : 0) * (rising ? 1 : -1);
  });
  list.append(...sorted);
}

find.addEventListener("input", filter);
for (const pick of picks) pick.addEventListener("change", filter);
for (const button of document.querySelectorAll("#heads button")) {
  button.addEventListener("click", () => sort(button));
}
document.getElementById("controls").hidden = false;
filter();

// A link to one utterance opens it.
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target && target.tagName === "DETAILS") target.open = true;
}
window.addEventListener("hashchange", reveal);
reveal();
