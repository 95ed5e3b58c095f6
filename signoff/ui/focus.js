// Keys go to the application as soon as it shows something, without a click.
new MutationObserver((_, observer) => {
  const input = document.querySelector(".xterm-helper-textarea");
  if (input && document.body.classList.contains("-first-byte")) {
    observer.disconnect();
    input.focus();
  }
}).observe(document, { attributes: true, childList: true, subtree: true });
