"""SQLAlchemy: a thread that inserts thousands of objects, beside one that does little."""

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import StaticPool
from ticker import beside_a_ticker


class Base(DeclarativeBase):
    pass


class Item(Base):
    __tablename__ = "items"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str]


engine = create_engine("sqlite://", poolclass=StaticPool, connect_args={"check_same_thread": False})
Base.metadata.create_all(engine)


def work():
    with Session(engine) as session:
        session.add_all([Item(name=f"item {n}") for n in range(500)])
        session.flush()
        session.rollback()


beside_a_ticker(work)
