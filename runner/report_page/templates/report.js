// A row, its node in the graph and its line in the file light up together.
const light = ({ target }) => {
  for (const each of document.querySelectorAll(".lit")) each.classList.remove("lit");
  const tokens = target.closest?.("[data-lit]")?.dataset.lit.split(" ") ?? [];
  for (const token of tokens)
    for (const each of document.querySelectorAll(`[data-lit~="${token}"]`)) each.classList.add("lit");
};
document.addEventListener("pointerover", light);
document.addEventListener("focusin", light);
