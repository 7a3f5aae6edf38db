from ._write import Page as Page, write_page as write_page
