"""Work-item documents: what they are called, who writes them, how they are read, judged for form, and begun."""
