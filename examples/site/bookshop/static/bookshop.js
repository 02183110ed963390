for (const form of document.forms) {
	form.addEventListener("submit", () => form.classList.add("sent"));
}
