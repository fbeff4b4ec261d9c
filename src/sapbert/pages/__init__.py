"""Self-contained HTML pages: `document` builds them from the styles and scripts in this folder."""
