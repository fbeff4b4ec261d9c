"""HTML pages in one file each: `document` makes them, style and scripts lie beside it."""
