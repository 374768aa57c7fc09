// A recording's image becomes its viewer once it is clicked; before, nothing of it is loaded.
document.addEventListener("click", event => {
  const link = event.target.closest(".recording > a");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const viewer = document.createElement("iframe");
  viewer.src = link.href;
  viewer.title = "An episode, which can be turned around";
  link.replaceWith(viewer);
});
